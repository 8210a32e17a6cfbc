"""Which hard case is met how, and which tests prove it; from this list the page for readers is made.

python tests/hard_cases.py          writes notebooks/HARD_CASES.md
python tests/hard_cases.py --run    runs the tests that are named here, and no others
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

COMMAND = "tests/hard_cases.py"
PAGE = Path(__file__).resolve().parents[1] / "notebooks" / "HARD_CASES.md"
REPORTED = 26  # the first so many were met by users of other programs; the rest we thought of ourselves
OUTCOMES = {
    "works": "the answer is right",
    "says so": "it runs, and a warning or the figure says what is special",
    "refused": "an error in one sentence, before any long work, with what to do instead",
}


@dataclass(frozen=True)
class Case:
    """A situation, what becomes of it, and the tests ``file::name`` that would fail if that were untrue."""

    number: int
    situation: str
    outcome: str
    behaviour: str
    tests: tuple[str, ...]


def _case(situation: str, outcome: str, behaviour: str, *tests: str) -> tuple[str, str, str, tuple[str, ...]]:
    return situation, outcome, behaviour, tuple(f"test_{name.replace('::', '.py::test_')}" for name in tests)


HERE = "hard_cases::"
_ALL = (
    # ---- met by others ----
    _case(
        "Empty or blank text",
        "refused",
        "the message names the text's place in the batch",
        "inputs::bad_texts_are_refused_with_their_position",
        HERE + "blank_texts_are_refused_alone_and_in_a_list",
        "triggers::a_blank_text_is_named_before_any_work",
    ),
    _case(
        "Empty second text of a pair",
        "refused",
        "alone and in a list alike",
        HERE + "blank_texts_are_refused_alone_and_in_a_list",
        "inputs::bad_texts_are_refused_with_their_position",
    ),
    _case(
        "600 tokens for a model of 512",
        "says so",
        "cut, with one warning that gives both counts",
        "inputs::too_long_a_text_is_cut_with_one_warning_that_gives_both_counts",
        HERE + "a_text_at_the_limit_is_whole_and_one_beyond_it_is_cut_with_a_warning",
        "models::the_warning_of_a_cut_names_the_text_by_its_place_in_the_batch",
        "cli::a_long_text_is_cut_with_one_line_of_notice",
    ),
    _case(
        "A tokenizer that claims a limit of 1e30",
        "works",
        "the model's table of positions decides; RoBERTa's minus 2",
        "inputs::the_position_table_decides_where_the_tokenizer_does_not_know",
        HERE + "a_text_at_the_limit_is_whole_and_one_beyond_it_is_cut_with_a_warning",
    ),
    _case(
        "Emoji, or a word that becomes [UNK]",
        "says so",
        "the written word is shown, with [UNK] beside it",
        "inputs::words_are_shown_as_written",
        "plots::labels_show_what_was_written",
        "plots::any_text_is_shown_as_it_is",
    ),
    _case(
        "`<script>`, `$`, `_`, `&` in a text",
        "works",
        "shown as they are in every kind of output, and never run",
        "security::no_output_holds_markup_of_a_text",
        "plots::any_text_is_shown_as_it_is",
        "tree::svg_shows_tokens_as_text",
        "gallery::no_text_of_a_markdown_cell_or_output_can_run",
        "cli::the_page_shows_its_figures_with_the_network_cut",
    ),
    _case(
        "The same token twice",
        "works",
        "two nodes in the tree, labels as written",
        "tree::a_repeated_token_is_two_nodes",
    ),
    _case(
        "One head, one layer; 6 or 24 layers",
        "works",
        "scores, heat maps and trees adapt",
        "attribution::any_number_of_layers_and_heads",
        "plots::small_and_large_models_are_drawn",
        "tree::one_layer_one_head",
        "tree::many_layers",
        HERE + "a_model_of_any_shape_equals_the_plain_algorithm",
    ),
    _case(
        "A model loaded with sdpa",
        "works",
        "is sdpa again afterwards, also after an error inside",
        "attention::the_model_is_restored",
        "attribution::equals_brute_force",
        HERE + "stopped_midway_the_model_is_as_before",
    ),
    _case(
        "A model in train mode",
        "works",
        "explained in eval mode, then in train mode again",
        "attention::the_model_is_restored",
        HERE + "dropout_draws_nothing_and_training_mode_comes_back",
    ),
    _case(
        "A batch of mixed lengths",
        "works",
        "equals one by one; padding is cropped and never attended to",
        "attribution::a_batch_equals_one_by_one_in_the_order_given",
        "attribution::equals_brute_force",
        "attention::without_the_mask_function_padding_would_be_attended",
        HERE + "any_batch_equals_its_texts_one_by_one",
    ),
    _case(
        "Left padding",
        "works",
        "the same result as right padding",
        "attribution::left_padding_tokenizers_change_nothing",
        "attribution::equals_brute_force",
        "inputs::padding_is_on_the_right_whatever_the_tokenizer_does",
    ),
    _case(
        "A model in fp16 or bf16",
        "says so",
        "sums are taken in float32, and the explanation names the precision",
        "attribution::half_precision_is_summed_in_float32",
        "attribution::half_precision_says_so",
        "attention::half_precision_runs_and_softmax_is_taken_in_float32",
    ),
    _case(
        "A model with one output",
        "works",
        "its raw output is explained: a softmax over one class has no slope",
        "attribution::one_output_is_explained_raw_and_many_labels_by_their_own_sigmoid",
        "models::one_output_is_given_raw",
        HERE + "any_number_of_classes",
    ),
    _case(
        "Labels named LABEL_0, or in another order",
        "refused",
        "matched by name or a stated mapping; accuracy below guessing shows the order that fits best",
        "evaluate::unnamed_classes_are_refused_with_both_lists_and_a_way_out",
        "evaluate::each_wrong_order_of_three_is_found_and_the_right_one_shown",
        "evaluate::a_model_may_order_its_classes_as_it_likes",
        "models::labels_in_another_order_are_refused",
    ),
    _case(
        "RoBERTa and DistilBERT, which have no segment ids",
        "works",
        "left out where the model has no place for them",
        "inputs::segment_ids_go_only_to_models_that_take_them",
        HERE + "a_model_with_one_segment_gets_no_second",
        HERE + "pairs_run_on_every_family_whatever_it_knows_of_segments",
    ),
    _case(
        "ALBERT, DistilBERT, ELECTRA, XLM-R, ModernBERT, GPT-2; DeBERTa",
        "works",
        "equal to a brute-force gradient; DeBERTa, which ignores the attention switch, is refused",
        "attribution::equals_brute_force",
        "attention::what_cannot_be_touched_is_refused",
        "cli::an_unsupported_model_is_refused_in_a_line",
    ),
    _case(
        "`head_mask=` is ignored in silence, `prune_heads` is gone",
        "works",
        "never relied on; a closed gate is shown to change the output",
        HERE + "what_is_ignored_in_silence_is_not_relied_on",
        "attention::gates_change_outputs_and_open_gates_do_not",
        "attention::a_gate_equals_zeroed_output_weights",
    ),
    _case(
        "A trigger with [CLS], with `##piece`, or with capitals",
        "says so",
        "[CLS] is refused, a piece goes in by its id, capitals are lowered with a notice",
        "triggers::special_and_unknown_tokens_are_refused",
        "triggers::a_piece_is_inserted_by_id_and_said_to_read_otherwise",
        "triggers::capitals_are_lowered_with_a_notice_where_the_model_reads_none",
    ),
    _case(
        "A trigger on a text at the length limit",
        "works",
        "the text is trimmed, the trigger stays",
        "triggers::a_text_at_the_limit_is_trimmed_and_the_trigger_stays",
    ),
    _case(
        "No attribution above 0, NaN, or a row of zeros",
        "says so",
        "'no edge above the threshold'; NaN is refused; nothing is divided by zero",
        "tree::nothing_passes",
        "tree::nothing_above_a_high_threshold_says_so",
        "tree::scores_that_are_no_numbers_are_refused",
        "plots::unusual_scores_are_drawn_and_named",
        "interop::no_score_at_all_and_no_number",
    ),
    _case(
        "0, negative or fractional steps",
        "refused",
        "and a number that the batch does not divide gives the right sum",
        "quadrature::bad_steps",
        "attribution::bad_settings_are_refused_before_any_work",
        "attribution::the_size_of_a_pass_changes_nothing",
    ),
    _case(
        "Prune 0 %, 100 %, or ties",
        "works",
        "the model itself; defined; always in the same order",
        "pruning::counts_of_shares",
        "pruning::of_equal_heads_the_first_in_the_model_goes_first",
        "pruning::gates_remove_the_smallest_or_the_largest_first",
        "surgery::a_cut_model_answers_as_the_gated_one",
    ),
    _case(
        "A misspelt parameter, a missing kernel, an unknown task",
        "refused",
        "one line, status not 0",
        "suite::what_cannot_be_done_is_refused_before_any_work",
        "suite::a_missing_kernel_is_one_line",
        "data::unknown_task_lists_the_known",
    ),
    _case(
        "A cache or results file cut short or of another version",
        "works",
        "noticed and made again, or refused; what was finished is kept when a run is interrupted",
        "suite::a_damaged_record_is_recognised_and_rebuilt",
        "suite::interrupt_keeps_what_is_finished_and_ends_the_kernel",
        "result::what_is_no_whole_attribution_is_refused",
        "tree::what_is_no_whole_tree_is_refused",
        "records::a_damaged_file_counts_as_empty",
        "finetune::a_checkpoint_cut_short_is_left_aside",
        "finetune::the_checkpoint_of_another_run_is_refused",
        "triggers::a_damaged_or_foreign_file_is_done_again",
        "models::a_changed_adapter_is_refused",
        "models::a_damaged_adapter_is_refused_in_one_line_with_its_folder",
        "surgery::weights_cut_short_are_refused",
        "security::every_kind_of_file_cut_anywhere_is_refused_or_made_again",
    ),
    _case(
        "A page opened with no network",
        "works",
        "figures are there, and controls say that they need a kernel",
        "gallery_browser::every_figure_is_drawn",
        "gallery_browser::nothing_was_asked_of_another_host_and_no_script_failed",
        "gallery::a_control_says_that_it_needs_a_kernel_and_fetches_nothing",
        "cli::the_page_shows_its_figures_with_the_network_cut",
    ),
    # ---- thought of here ----
    _case(
        "Any signs at all: control characters, right-to-left, combining and zero-width marks, a word of 4,000 letters, "
        "only punctuation",
        "works",
        "explained, every token in one word; or refused where no token is left",
        HERE + "any_text_is_explained_or_refused_in_a_sentence",
    ),
    _case(
        "Wide, turned and stacked letters in figures",
        "works",
        "drawn, exported and saved",
        HERE + "signs_of_any_script_are_drawn",
        "tree_view::words_never_overlap",
    ),
    _case(
        "A text of exactly the limit",
        "works",
        "whole and without a warning; one token more is cut with one",
        HERE + "a_text_at_the_limit_is_whole_and_one_beyond_it_is_cut_with_a_warning",
    ),
    _case(
        "Bytes, a set, a path, None, pd.NA or a number for a text",
        "refused",
        "says which, where, and how to mend it",
        HERE + "what_is_no_text_is_refused_with_the_cure",
    ),
    _case(
        "A generator, a numpy array, numpy strings, a pandas Series with any index",
        "works",
        "the same as a list",
        HERE + "texts_of_every_container_are_the_same_texts",
        "pruning::one_text_one_pair_and_a_generator_are_texts",
    ),
    _case(
        "A text twice in a batch",
        "works",
        "the same scores twice, in the order given",
        HERE + "a_text_twice_in_a_batch_has_the_same_scores_twice",
    ),
    _case(
        "Any batch of any texts, split in any way",
        "works",
        "equals its texts one by one",
        HERE + "any_batch_equals_its_texts_one_by_one",
    ),
    _case(
        "Holes in the attention mask",
        "works",
        "what is masked out has no score; the rest equals the plain algorithm",
        HERE + "holes_in_the_mask_are_no_tokens",
    ),
    _case(
        "Inputs that are strided, turned in memory, or have a mask of True and False",
        "works",
        "the same, and the caller's tensors stay as they were",
        HERE + "inputs_of_any_layout_in_memory",
    ),
    _case(
        "Models of any shape: 1 to 4 layers and heads, odd sizes, 2 to 7 classes, padding on either side",
        "works",
        "equal to the plain algorithm",
        HERE + "a_model_of_any_shape_equals_the_plain_algorithm",
    ),
    _case(
        "1, 2, 5 or 150 classes, exclusive or not",
        "works",
        "scores add up to what the layer changes",
        HERE + "any_number_of_classes",
    ),
    _case(
        "Pairs on a family that knows no segments",
        "works",
        "both texts are told apart in the words shown",
        HERE + "pairs_run_on_every_family_whatever_it_knows_of_segments",
    ),
    _case(
        "Dropout of one half in a model in train mode",
        "works",
        "no number is drawn: generators stay where they were",
        HERE + "dropout_draws_nothing_and_training_mode_comes_back",
    ),
    _case(
        "Activation checkpointing switched on",
        "works",
        "the same scores",
        HERE + "activation_checkpointing_changes_nothing",
    ),
    _case(
        "A config that asks for attentions, hidden states, a cache, or tuples",
        "works",
        "the same scores",
        HERE + "settings_of_a_config_that_ask_for_more_outputs",
        "attribution::models_that_return_tuples",
    ),
    _case(
        "A model of torch.compile, of peft, or in a wrapper",
        "refused",
        "names the model inside, which works",
        HERE + "a_compiled_model_is_refused_and_the_one_inside_works",
        "attribution::encoder_decoders_and_wrappers_are_refused_with_the_cure",
    ),
    _case(
        "A model on the meta device",
        "refused",
        "it has no weights: load it",
        HERE + "a_model_without_weights_is_refused_with_the_cure",
    ),
    _case(
        "A model that is copied, pickled, saved or freed after it was explained",
        "works",
        "nothing of ours stays on it",
        HERE + "a_copied_and_a_pickled_model_are_clean",
        HERE + "a_model_that_was_explained_can_be_freed",
    ),
    _case(
        "Ctrl-C, full memory or an error in the middle",
        "works",
        "mode, switch, gradients and locks as before",
        HERE + "stopped_midway_the_model_is_as_before",
        "attribution::a_batch_that_runs_out_of_memory_is_halved_until_it_fits",
    ),
    _case(
        "A training in progress: gradients collected, some weights frozen",
        "works",
        "gradients and switches stay",
        HERE + "gradients_and_frozen_weights_of_a_training_in_progress_stay",
        "attribution::under_no_grad_and_with_frozen_or_training_weights",
    ),
    _case(
        "Weights that are NaN or infinite",
        "refused",
        "names the rows, or the weights on loading",
        "attribution::outputs_that_are_not_finite_are_refused",
        "models::a_damaged_folder_is_refused_in_one_line",
    ),
    _case(
        "A tokenizer without special tokens",
        "works",
        "tokens are the words",
        HERE + "a_tokenizer_without_special_tokens",
        "triggers::without_special_tokens",
    ),
    _case(
        "A tokenizer without a padding token",
        "refused",
        "the two assignments in the message cure it",
        HERE + "a_tokenizer_without_padding_names_a_cure_that_cures",
        "inputs::no_padding_token_names_the_cure",
    ),
    _case(
        "A tokenizer that was pickled, or was told to pad or cut by itself",
        "works",
        "its habits are not taken over",
        HERE + "a_tokenizer_that_was_pickled_or_pads_its_own_way",
    ),
    _case(
        "The tokenizer of another model",
        "refused",
        "tokens that the model does not know are named",
        "inputs::the_tokenizer_of_another_model_is_refused",
        "inputs::padding_that_the_model_would_take_for_text_is_refused",
    ),
    _case(
        "Callers under no_grad, inference_mode or enable_grad",
        "works",
        "the same, and their switch stays",
        HERE + "callers_that_switch_gradients_get_the_same_and_keep_their_switch",
    ),
    _case(
        "Callers under autocast",
        "works",
        "the model answers in its own precision",
        HERE + "predictions_do_not_follow_a_callers_autocast",
        HERE + "attributions_do_not_follow_a_callers_autocast",
    ),
    _case(
        "Callers with another default number format",
        "works",
        "the same scores",
        HERE + "callers_with_another_default_number_format",
    ),
    _case(
        "Warnings made errors; nothing may be printed",
        "works",
        "ordinary texts warn of nothing and print nothing",
        HERE + "ordinary_texts_warn_of_nothing_and_print_nothing",
        "models::loading_is_quiet_and_leaves_verbosity_as_it_was",
    ),
    _case(
        "Threads with one model, or with one each",
        "works",
        "they wait for each other, or do not mix",
        "attribution::threads_in_one_model_wait_for_each_other",
        HERE + "threads_with_models_of_their_own_do_not_mix",
    ),
    _case(
        "An attribution inside an open block of another kind",
        "works",
        "explains the changed model, and its record stays",
        HERE + "an_attribution_inside_a_recording_block_leaves_the_record_alone",
        "attribution::an_attribution_inside_a_gate_explains_the_pruned_model",
        "attention::blocks_nest_and_the_inner_one_sees_the_outer_change",
        "attention::two_models_in_nested_blocks_do_not_mix",
    ),
    _case(
        "A class as -1, True, 1.0 or a name that is not there",
        "refused",
        "the classes that are there are listed",
        HERE + "classes_that_are_not_there_are_refused_in_a_sentence",
        "attribution::targets_that_are_no_classes",
    ),
    _case(
        "A class as a number of numpy or torch, a name, a list, a Series",
        "works",
        "all mean the same class",
        HERE + "classes_in_every_kind_that_means_one",
        "attribution::targets_of_any_whole_kind",
    ),
    _case(
        "Two classes of one name",
        "refused",
        "asks for the number",
        "attribution::two_classes_of_one_name_are_told_apart_by_number_only",
    ),
    _case(
        "Every kind of file cut at any byte",
        "refused",
        "refused in a sentence, or made again",
        "security::every_kind_of_file_cut_anywhere_is_refused_or_made_again",
    ),
    _case(
        "A folder with code, pickled weights or a remote model",
        "refused",
        "nothing of it is run",
        "models::pickled_weights_are_refused",
        "models::a_pickled_adapter_is_refused",
        "models::code_that_a_folder_brings_is_not_run",
        "surgery::no_code_from_the_folder_is_run",
        "security::no_helper_runs_what_it_reads",
    ),
    _case(
        "A machine without a network",
        "works",
        "no address is asked for; a try fails at once, with what to do instead",
        "security::a_name_or_an_address_outside_is_refused",
        "hub::with_the_hub_switched_off_the_cache_is_enough",
        "hub::a_hub_that_cannot_be_reached_is_said_at_once",
    ),
    _case(
        "A project folder that must not change",
        "works",
        "only the build folder and caches are written to",
        "security::a_run_writes_in_its_build_folder_only",
    ),
    _case(
        "Another order of notebooks, another hash seed",
        "works",
        "the same results, number by number",
        "determinism::the_same_figures_in_another_order_with_another_hash_seed",
        "attribution::equal_calls_give_equal_numbers",
    ),
    _case(
        "An error in a notebook's cell",
        "refused",
        "the cell's own line and the sentence, without the library's stack",
        "errors::a_cell_shows_its_own_line_and_the_sentence",
    ),
)
CASES = tuple(Case(number, *parts) for number, parts in enumerate(_ALL, 1))


def page() -> str:
    """The page for readers: outcomes, the two tables, and which models."""
    count = Counter(case.outcome for case in CASES)
    named = {name for case in CASES for name in case.tests}
    lines = [
        "# Hard cases",
        "",
        f"Where such programs tend to break: {len(CASES)} situations, {len(named)} tests. "
        f"`python {COMMAND} --run` runs these tests alone, `python {COMMAND}` writes this page, and a test "
        "compares them. A page like this is only as good as its tests: a case that you miss here, or that goes "
        "otherwise with your model, is worth telling us about.",
        "",
        *(f"- **{name}** ({count[name]}): {meaning}." for name, meaning in OUTCOMES.items()),
        "",
        "## Met by users of other programs",
        "",
        *_table(CASES[:REPORTED]),
        "",
        "## Thought of here",
        "",
        "Several of these are searched for with random texts, masks and models (hypothesis), not only tried on one.",
        "",
        *_table(CASES[REPORTED:]),
        "",
        "## Which models",
        "",
        "| model | | why |",
        "| --- | --- | --- |",
        *(f"| {name} | {verdict} | {why} |" for name, verdict, why in MODELS),
    ]
    return "\n".join(lines) + "\n"


_EQUAL = "equal to a brute-force gradient, float64 within 1e-10, padded on either side"
MODELS = (
    *(
        (name, "supported", _EQUAL)
        for name in ("BERT", "RoBERTa", "XLM-R", "ELECTRA", "DistilBERT", "ALBERT", "ModernBERT", "GPT-2")
    ),
    (
        "DeBERTa",
        "refused",
        "computes attention in code of its own and ignores transformers' switch: scores would be zeros",
    ),
    (
        "T5, BART and other encoder-decoders",
        "refused",
        "layers read different tokens: one list of tokens can't name them",
    ),
    ("attention with soft caps, sinks or position biases", "refused", "needs more than softmax(q k + mask) v"),
    ("a model of torch.compile, peft or a wrapper", "refused", "the model inside works, and the message names it"),
    ("half precision", "supported", "says so, and sums in float32; load it in float32 for small gaps"),
)


def _table(cases) -> list[str]:
    rows = [f"| {c.number} | {c.situation} | {c.outcome} | {c.behaviour} | {_tests(c)} |" for c in cases]
    return ["| | situation | outcome | in words | tests |", "| --- | --- | --- | --- | --- |", *rows]


def _tests(case: Case) -> str:
    return "<br>".join(
        f"`{name.removeprefix('test_').replace('.py::test_', ': ').replace('_', ' ')}`" for name in case.tests
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--run"]:
        import pytest

        names = dict.fromkeys(str(PAGE.parents[1] / "tests" / name) for case in CASES for name in case.tests)
        sys.exit(pytest.main(["-q", *names]))
    PAGE.write_text(page(), encoding="utf-8")
