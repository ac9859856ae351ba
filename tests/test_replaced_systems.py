"""What the systems that onnxreg replaces do, and once did better: each requirement with the tests that show it.

The systems are OpenMed's Android export, txtai's HFOnnx, Orchard ML's export phase, a Swin backbone with hundreds of disease
heads and an out-of-distribution detector, and Olive's ONNX passes. docs/comparison.md has the requirements that are not met.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

SHOWN: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "OpenMed",
        "an export makes the .ort once its tooling is there, though an earlier export skipped it",
        (
            "cli/commands/test_recipes.py::test_a_step_that_was_skipped_is_made_once_its_package_is_back",
            "converters/engine/test_execute.py::test_an_optional_step_is_skipped_on_record_with_what_comes_after",
        ),
    ),
    (
        "OpenMed",
        "an imported directory is held to checker, ONNX Runtime and tensor contract",
        (
            "converters/importers/test_openmed.py::test_import_refuses_the_files_that_add_refuses",
            "converters/importers/test_adopt.py::test_android_formats_are_checked_against_their_contract",
        ),
    ),
    (
        "OpenMed",
        "an INT8 that OpenMed itself refused stays refused",
        ("converters/importers/test_openmed.py::test_a_claimed_refusal_stays_one",),
    ),
    (
        "txtai",
        "quantization makes an encoder up to four times smaller, embedding tables included",
        (
            "cli/commands/test_export_task.py::test_embedding_tables_are_int8_on_request",
            "converters/test_oneshot.py::test_embedding_tables_are_int8_on_request",
        ),
    ),
    (
        "Orchard",
        "model.onnx is written to exports/ beside checkpoints/ of a run directory",
        ("cli/commands/test_export_vision.py::test_an_export_into_its_run_directory_lands_in_exports",),
    ),
    (
        "Orchard",
        "an opset that only another exporter can give says so",
        (
            "converters/passes/test_conversion.py::test_an_older_opset_than_the_dynamo_exporter_has_is_an_error",
        ),
    ),
    (
        "Orchard",
        "quantization_backend fbgemm quantizes per channel where ONNX Runtime can",
        (
            "converters/engine/test_orchard.py::test_types_and_backends",
            "converters/passes/test_precision.py::test_per_channel_is_the_default_and_better",
        ),
    ),
    (
        "Orchard",
        "a missing onnxscript is named",
        ("converters/passes/test_conversion.py::test_the_package_that_the_dynamo_exporter_needs_is_named",),
    ),
    (
        "Orchard",
        "any recipe can end in an .ort file for phones",
        ("converters/engine/test_execute.py::test_a_tree_is_published_with_its_parents",),
    ),
    (
        "Orchard",
        "a whole configuration is read as it stands; what becomes of each field is said",
        (
            "converters/engine/test_orchard.py::test_a_whole_configuration_of_orchard_runs_as_it_stands",
            "cli/commands/test_export_vision.py::test_people_read_what_became_of_each_field",
        ),
    ),
    (
        "Swin family",
        "opset 17, and class names with spaces",
        ("converters/families/test_export.py::test_names_of_people_and_of_the_document_at_opset_17",),
    ),
    (
        "Swin family",
        "the backbone is any module by its factory, with the checkpoint of Lightning or timm",
        (
            "cli/commands/test_family_factory.py::test_the_backbone_is_resolved_and_answers_as_the_module",
            "cli/commands/test_family_factory.py::test_code_that_is_not_allowed_does_not_run",
        ),
    ),
    (
        "Swin family",
        "Swin, ConvNeXt and ViT of transformers are backbones",
        (
            "converters/families/test_export.py::test_a_backbone_gives_the_logits_of_the_checkpoint_and_the_embedding_behind_them",
        ),
    ),
    (
        "Swin family",
        "hundreds of heads are one release",
        ("examples/test_digits_family.py::test_hundreds_of_heads_are_one_release",),
    ),
    (
        "Swin family",
        "limits of sizes are stated per member and precision, and refuse the release",
        ("converters/families/test_export.py::test_a_limit_that_does_not_hold_refuses_the_release",),
    ),
    (
        "Swin family",
        "a size is on record to the byte",
        ("cli/commands/test_recipes.py::test_a_size_is_on_record_to_the_byte",),
    ),
    (
        "Swin family",
        "preprocessing is bound to the release",
        (
            "converters/families/test_export.py::test_names_of_people_and_of_the_document_at_opset_17",
            "cli/commands/test_export_vision.py::test_labels_and_preprocessing_are_in_the_manifest",
        ),
    ),
    (
        "Olive",
        "input_dim and the axes batch_size and sequence_length work in a document",
        ("converters/engine/test_olive.py::test_axes_of_a_checkpoint_have_our_names",),
    ),
    (
        "Olive",
        "the shortest OnnxIODataTypeConverter converts all inputs and outputs",
        (
            "converters/engine/test_olive.py::test_the_shortest_type_converter_is_for_all_inputs_and_outputs",
            "converters/passes/test_io_data_type.py::test_everything_by_pattern_and_an_output_that_is_read_inside_too",
        ),
    ),
    (
        "Olive",
        "bfloat16 casts",
        (
            "converters/passes/test_io_data_type.py::test_bfloat16",
            "cli/commands/test_recipes.py::test_a_graph_of_bfloat16_is_exported_proven_and_run",
        ),
    ),
    (
        "Olive",
        "ModelBuilder: the block size and the accuracy level of the graph are those asked for; int8",
        (
            "converters/passes/test_model_builder.py::test_block_size_and_accuracy_level_are_those_of_the_graph",
            "converters/passes/test_model_builder.py::test_another_block_size_than_asked_for_is_refused",
            "converters/passes/test_model_builder.py::test_every_precision_is_what_was_asked_and_agrees",
        ),
    ),
    (
        "Olive",
        "OrtMixedPrecision: op_block_list counts",
        (
            "converters/passes/test_mixed_precision.py::test_listed_operators_stay_float32_though_the_search_needs_none",
            "converters/passes/test_mixed_precision.py::test_a_search_that_ends_early_says_so",
        ),
    ),
    (
        "Olive",
        "fp16 values that overflow on half precision hardware are seen without it",
        (
            "converters/passes/test_float16.py::test_overflowing_nodes_stay_float32_and_are_recorded",
            "converters/passes/test_float16.py::test_onnx_runtime_on_a_cpu_does_not_show_the_overflow",
        ),
    ),
    (
        "Olive",
        "fp16, then fixed shapes: a tolerance of a few roundings of the weights' own type",
        ("converters/passes/test_proof.py::test_a_tolerance_allows_a_few_roundings_of_the_weights_own_type",),
    ),
    (
        "all",
        "version 1 keys that contradict the verdict make a manifest invalid",
        ("schema/manifest/test_manifest_hostile.py::test_a_wrong_value_is_refused",),
    ),
    (
        "all",
        "the profile is a field of query and --where",
        ("registry/test_summary_fields.py::test_a_profile_is_asked_for",),
    ),
    (
        "all",
        "a place that loses what it is given is no remote",
        ("registry/log/test_transfer.py::test_a_place_that_does_not_last_is_refused",),
    ),
)

REFUSED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "Olive",
        "ModelBuilder bf16: ONNX Runtime has no CPU kernels, so nothing could be compared",
        ("converters/passes/test_model_builder.py::test_invalid_sources_and_parameters_are_refused",),
    ),
    (
        "Olive",
        "OnnxConversion.device, torch_dtype, merge_adapter_weights and scripts beyond their defaults",
        ("converters/engine/test_olive.py::test_passes_that_cannot_be_run",),
    ),
    (
        "Olive",
        "a PyTorchModel as input model",
        ("converters/engine/test_olive.py::test_documents_that_are_none",),
    ),
    (
        "Orchard",
        "the architecture of a configuration: the factory that makes the module must be named",
        ("converters/tasks/test_image_classification.py::test_a_run_directory_brings_its_best_checkpoint",),
    ),
)
"""Requirements that are refused with a reason, before anything is made."""


@cache
def functions(path: Path) -> frozenset[str]:
    """The names of the tests of a module."""
    return frozenset(
        node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)
    )


@pytest.mark.parametrize(
    "tests", [pytest.param(tests, id=f"{system}: {text}") for system, text, tests in (*SHOWN, *REFUSED)]
)
def test_each_requirement_has_its_tests(tests: tuple[str, ...]) -> None:
    for test in tests:
        path, _, name = test.partition("::")
        assert name in functions(TESTS / path), test
