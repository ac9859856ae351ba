package org.onnxreg.client;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Contrib operators and the releases that run them: docs/resolve.md, "Contrib operators". */
final class Contrib {
    static final String DOMAIN = "com.microsoft";
    /** schema/query/contrib_releases.json: a minor release of ONNX Runtime 1, and what it is the first to have. */
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
        "16: ai.onnx:DequantizeLinear Float8E4M3FN, ai.onnx:DequantizeLinear Float8E4M3FNUZ",
        "16: ai.onnx:DequantizeLinear Float8E5M2, ai.onnx:DequantizeLinear Float8E5M2FNUZ",
        "16: ai.onnx:QuantizeLinear Float8E4M3FN, ai.onnx:QuantizeLinear Float8E4M3FNUZ",
        "16: ai.onnx:QuantizeLinear Float8E5M2, ai.onnx:QuantizeLinear Float8E5M2FNUZ",
        "17: Attention rotary_embedding_dim, DequantizeLinear int16_t, DequantizeLinear int32_t",
        "17: DequantizeLinear uint16_t, MatMulBnb4 training_mode, MatMulBnb4 transB",
        "17: MatMulNBits accuracy_level, MatMulNBits inputs=4, MultiHeadAttention unidirectional",
        "17: QuantizeLinear int16_t, QuantizeLinear uint16_t, RotaryEmbedding num_heads",
        "17: RotaryEmbedding rotary_embedding_dim, WhisperBeamSearch",
        "17: ai.onnx:SplitToSequence kernel=MLFloat16",
        "18: GroupQueryAttention, MatMulNBits inputs=5, MatMulNBits int32_t",
        "18: WhisperBeamSearch inputs=15, ai.onnx:DequantizeLinear int16_t",
        "18: ai.onnx:DequantizeLinear uint16_t, ai.onnx:IsInf kernel=MLFloat16",
        "18: ai.onnx:QuantizeLinear int16_t, ai.onnx:QuantizeLinear uint16_t",
        "19: DequantizeLinear Int4x2, DequantizeLinear UInt4x2, GroupQueryAttention smooth_softmax",
        "19: MatMulNBits inputs=6, QuantizeLinear Int4x2, QuantizeLinear UInt4x2",
        "19: RotaryEmbedding is_packed_batching, SparseAttention, ai.onnx:Clip kernel=MLFloat16",
        "19: ai.onnx:DequantizeLinear Int4x2, ai.onnx:DequantizeLinear UInt4x2",
        "19: ai.onnx:QuantizeLinear Int4x2, ai.onnx:QuantizeLinear UInt4x2",
        "20: DecoderMaskedMultiHeadAttention, DynamicTimeWarping, GatherBlockQuantized",
        "20: GroupQueryAttention kernel=MLFloat16, GroupQueryAttention softcap",
        "20: MatMulNBits MLFloat16, MatMulNBits kernel=MLFloat16, RotaryEmbedding kernel=MLFloat16",
        "20: SkipLayerNormalization kernel=MLFloat16",
        "20: SkipSimplifiedLayerNormalization kernel=MLFloat16, UnfoldTensor",
        "20: ai.onnx:LayerNormalization kernel=MLFloat16",
        "20: ai.onnx:SimplifiedLayerNormalization kernel=MLFloat16",
        "22: GatherBlockQuantized uint8_t, GroupQueryAttention inputs=10",
        "22: GroupQueryAttention inputs=11, MultiHeadAttention inputs=10",
        "22: MultiHeadAttention inputs=9, SparseAttention kernel=MLFloat16",
        "23: GatherBlockQuantized bits, GroupQueryAttention inputs=12",
        "23: GroupQueryAttention qk_output, MatMulNBits bits=8, MoE, QMoE",
        "24: MatMulNBits bits=2, QMoE inputs=12, QMoE inputs=13, QMoE inputs=14",
        "24: ai.onnx:DequantizeLinear Int2x4, ai.onnx:DequantizeLinear UInt2x4",
        "24: ai.onnx:QuantizeLinear Int2x4, ai.onnx:QuantizeLinear UInt2x4",
        "25: CausalConvWithState, GroupQueryAttention inputs=13, GroupQueryAttention inputs=14",
        "25: GroupQueryAttention k_quant_type, GroupQueryAttention kv_cache_bit_width",
        "25: GroupQueryAttention v_quant_type, LinearAttention, QMoE inputs=15",
        "26: FusedMatMul double",
        "27: GroupQueryAttention int8_t, GroupQueryAttention uint8_t, QMoE inputs=16",
        "27: QMoE inputs=17, QMoE inputs=18, QMoE inputs=19, QMoE inputs=20, QMoE inputs=21",
        "27: QMoE quant_type",
        "28: GroupQueryAttention inputs=15, GroupQueryAttention inputs=16",
        "28: GroupQueryAttention qk_norm_epsilon, MatMulNBits weight_prepacked",
        "28: QMoE weights_prepacked",
        "29: CausalConvWithState state_window, GroupQueryAttention sliding_window_cache",
        "29: LinearAttention state_window, MRotaryEmbedding, ai.onnx:Gemm kernel=MLFloat16",
        "29: ai.onnx:MatMul kernel=MLFloat16",
        "30: CausalConvWithState channels_last, CausalConvWithState dilation, EngramGate, GatedAdd",
        "30: GatedRMSNorm, GroupQueryAttention causal, LinearAttentionGate, NGramHashMapping",
        "30: SkipLayerNormalization BFloat16, SkipSimplifiedLayerNormalization BFloat16",
        "31: BranchwiseRMSNorm, EngramGate inputs=6, GatedRMSNorm activation",
        "31: GatherBlockQuantized Float4E2M1x2, GatherBlockQuantized Float8E4M3FN",
        "31: GatherBlockQuantized Float8E4M3FNUZ, GatherBlockQuantized Float8E5M2",
        "31: GatherBlockQuantized Float8E5M2FNUZ, HyperConnectionPostMix, HyperConnectionPreMix",
        "31: NGramHashMapping inputs=5, NGramHashMapping inputs=6, NGramHashMapping inputs=7",
        "31: NGramHashMapping reset_on_eos, QMoE accuracy_level, QMoE fc1_expert_weight_bits",
        "31: QMoE fc2_expert_weight_bits, QMoE fc3_expert_weight_bits, ScaledSiLU",
        "31: VarlenNGramHashMapping",
    };
    private static final Map<String, RuntimeRelease> FIRST = new HashMap<>();

    static {
        for (String row : ROWS) {
            String[] parts = row.split(": ", 2);
            for (String need : parts[1].split(", ")) {
                FIRST.put(need, RuntimeRelease.parse("1." + parts[0]));
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
