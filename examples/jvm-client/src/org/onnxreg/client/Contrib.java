package org.onnxreg.client;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Contrib operators and the releases that run them: docs/resolve.md, "Contrib operators". */
final class Contrib {
    static final String DOMAIN = "com.microsoft";
    /**
     * schema/query/contrib_releases.json: minor releases of ONNX Runtime 1, with the operators that are new in each.
     */
    private static final String[] ROWS = {
        "15: Attention, BiasGelu, DequantizeLinear, DynamicQuantizeMatMul, EmbedLayerNormalization",
        "15: FastGelu, FusedGemm, FusedMatMul, Gelu, MatMulIntegerToFloat, QAttention, QGemm",
        "15: QuickGelu, SkipLayerNormalization, ai.onnx:SimplifiedLayerNormalization",
        "16: AttnLSTM, BeamSearch, BifurcationDetector, CDist, ConvTransposeWithDynamicPads",
        "16: CropAndResize, DynamicQuantizeLSTM, ExpandDims, FusedConv, GatherND, GreedySearch",
        "16: GridSample, Inverse, MatMulBnb4, MatMulFpQ4, MatMulInteger16, MatMulNBits",
        "16: MaxpoolWithMask, MultiHeadAttention, MurmurHash3, NGramRepeatBlock, NhwcMaxPool, Pad",
        "16: QEmbedLayerNormalization, QLinearAdd, QLinearAveragePool, QLinearConcat, QLinearConv",
        "16: QLinearGlobalAveragePool, QLinearLeakyRelu, QLinearMul, QLinearSigmoid",
        "16: QLinearSoftmax, QLinearWhere, QuantizeLinear, Range, RotaryEmbedding, SampleOp",
        "16: Sampling, SkipSimplifiedLayerNormalization, SparseToDenseMatMul, Tokenizer",
        "16: TransposeMatMul, Trilu, Unique, WordConvEmbedding",
        "16: ai.onnx:DequantizeLinear Float8E4M3FN|Float8E4M3FNUZ|Float8E5M2|Float8E5M2FNUZ",
        "16: ai.onnx:QuantizeLinear Float8E4M3FN|Float8E4M3FNUZ|Float8E5M2|Float8E5M2FNUZ",
        "17: Attention rotary_embedding_dim, DequantizeLinear int16_t|int32_t|uint16_t",
        "17: MatMulBnb4 training_mode|transB, MatMulNBits accuracy_level|inputs=4",
        "17: MultiHeadAttention unidirectional, QuantizeLinear int16_t|uint16_t",
        "17: RotaryEmbedding num_heads|rotary_embedding_dim, WhisperBeamSearch",
        "17: ai.onnx:SplitToSequence kernel=MLFloat16",
        "18: GroupQueryAttention, MatMulNBits inputs=5|int32_t, WhisperBeamSearch inputs=15",
        "18: ai.onnx:DequantizeLinear int16_t|uint16_t, ai.onnx:IsInf kernel=MLFloat16",
        "18: ai.onnx:QuantizeLinear int16_t|uint16_t",
        "19: DequantizeLinear Int4x2|UInt4x2, GroupQueryAttention smooth_softmax",
        "19: MatMulNBits inputs=6, QuantizeLinear Int4x2|UInt4x2",
        "19: RotaryEmbedding is_packed_batching, SparseAttention, ai.onnx:Clip kernel=MLFloat16",
        "19: ai.onnx:DequantizeLinear Int4x2|UInt4x2, ai.onnx:QuantizeLinear Int4x2|UInt4x2",
        "20: DecoderMaskedMultiHeadAttention, DynamicTimeWarping, GatherBlockQuantized",
        "20: GroupQueryAttention kernel=MLFloat16|softcap, MatMulNBits MLFloat16|kernel=MLFloat16",
        "20: RotaryEmbedding kernel=MLFloat16, SkipLayerNormalization kernel=MLFloat16",
        "20: SkipSimplifiedLayerNormalization kernel=MLFloat16, UnfoldTensor",
        "20: ai.onnx:LayerNormalization kernel=MLFloat16",
        "20: ai.onnx:SimplifiedLayerNormalization kernel=MLFloat16",
        "22: GatherBlockQuantized uint8_t, GroupQueryAttention inputs=10|inputs=11",
        "22: MultiHeadAttention inputs=10|inputs=9, SparseAttention kernel=MLFloat16",
        "23: GatherBlockQuantized bits, GroupQueryAttention inputs=12|qk_output",
        "23: MatMulNBits bits=8, MoE, QMoE",
        "24: MatMulNBits bits=2, QMoE inputs=12|inputs=13|inputs=14",
        "24: ai.onnx:DequantizeLinear Int2x4|UInt2x4, ai.onnx:QuantizeLinear Int2x4|UInt2x4",
        "25: CausalConvWithState",
        "25: GroupQueryAttention inputs=13|inputs=14|k_quant_type|kv_cache_bit_width|v_quant_type",
        "25: LinearAttention, QMoE inputs=15",
        "26: FusedMatMul double",
        "27: GroupQueryAttention int8_t|uint8_t",
        "27: QMoE inputs=16|inputs=17|inputs=18|inputs=19|inputs=20|inputs=21|quant_type",
        "28: GroupQueryAttention inputs=15|inputs=16|qk_norm_epsilon, MatMulNBits weight_prepacked",
        "28: QMoE weights_prepacked",
        "29: CausalConvWithState state_window, GroupQueryAttention sliding_window_cache",
        "29: LinearAttention state_window, MRotaryEmbedding, ai.onnx:Gemm kernel=MLFloat16",
        "29: ai.onnx:MatMul kernel=MLFloat16",
        "30: CausalConvWithState channels_last|dilation, EngramGate, GatedAdd, GatedRMSNorm",
        "30: GroupQueryAttention causal, LinearAttentionGate, NGramHashMapping",
        "30: SkipLayerNormalization BFloat16, SkipSimplifiedLayerNormalization BFloat16",
        "31: BranchwiseRMSNorm, EngramGate inputs=6, GatedRMSNorm activation",
        "31: GatherBlockQuantized Float4E2M1x2|Float8E4M3FN|Float8E4M3FNUZ|Float8E5M2|Float8E5M2FNUZ",
        "31: HyperConnectionPostMix, HyperConnectionPreMix",
        "31: NGramHashMapping inputs=5|inputs=6|inputs=7|reset_on_eos",
        "31: QMoE accuracy_level|fc1_expert_weight_bits|fc2_expert_weight_bits|fc3_expert_weight_bits",
        "31: ScaledSiLU, VarlenNGramHashMapping",
    };
    private static final Map<String, RuntimeRelease> FIRST = new HashMap<>();

    static {
        for (String row : ROWS) {
            String[] parts = row.split(": ", 2);
            for (String need : parts[1].split(", ")) {
                String[] words = (need + " ").split(" ", 2);
                for (String feature : words[1].trim().split("\\|")) {
                    FIRST.put((words[0] + " " + feature).trim(), RuntimeRelease.parse("1." + parts[0]));
                }
            }
        }
    }

    private Contrib() {}

    /** Return the first need that a release lacks, in words; null if it has all. */
    static String problem(RuntimeRelease release, List<String> needs) {
        for (String need : needs) {
            RuntimeRelease first = FIRST.get(need);
            if (first == null) {
                return "needs " + need + ", which no release of ONNX Runtime known here runs on the CPU";
            }
            if (first.compareTo(release) > 0) {
                return "needs " + need + ", ONNX Runtime " + release + " lacks it, " + first + " has it";
            }
        }
        return null;
    }
}
