"""Which families of models work: the largest relative difference from the plain algorithm, or why it is refused.

    python benchmarks/families.py            # the families that the tests cover, and others that were tried
    python benchmarks/families.py --write    # the same, into the tables of notebooks/FAMILIES.md
    python benchmarks/families.py --only bert vit

Every family is a small random model. The plain algorithm is that of the tests (tests/families.py): for every layer and
every point the whole network, and the gradient of the [query, key] matrices. Differences are relative to the layer's
largest score, the worst over a padded batch of three; what is expected is rounding, about 1e-12 in float64. The gap is
the largest |sum of a layer's scores - change of F| with 48 Gauss points, relative to the largest change of F.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
import transformers
from transformers import AutoModelForImageClassification, AutoModelForSequenceClassification

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
sys.modules.pop("families", None)

from families import EVERY, VOCABULARY, difference, inputs, make, pictures, reference  # noqa: E402

from helpers.attention import UnsupportedModelError  # noqa: E402
from helpers.attribution import attribute_inputs  # noqa: E402
from helpers.quadrature import points_and_weights  # noqa: E402

PAGE = ROOT / "notebooks" / "FAMILIES.md"
TARGET = torch.tensor([2, 0, 1])
COLUMNS = ["family", "layers x heads", "difference, float64", "difference, float32", "gap"]
_TEXT = dict(
    vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=32,
    max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, num_labels=3, initializer_range=0.3,
)  # fmt: skip
_GROUPED = _TEXT | {"num_key_value_heads": 2, "head_dim": 6}
_IMAGE = dict(
    hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=32, image_size=12, patch_size=4,
    num_channels=2, num_labels=3, initializer_range=0.3,
)  # fmt: skip
OTHERS = {  # families that no test covers: configuration and settings
    "CamembertConfig": _TEXT, "MPNetConfig": _TEXT, "ErnieConfig": _TEXT, "Data2VecTextConfig": _TEXT,
    "XmodConfig": _TEXT | {"languages": ("en",), "default_language": "en"}, "RoFormerConfig": _TEXT,
    "SqueezeBertConfig": _TEXT | {"embedding_size": 24, "q_groups": 1, "k_groups": 1, "v_groups": 1,
                                  "post_attention_groups": 1, "intermediate_groups": 1, "output_groups": 1},
    "FNetConfig": _TEXT, "NystromformerConfig": _TEXT | {"num_landmarks": 4, "segment_means_seq_len": 9},
    "LongformerConfig": _TEXT | {"attention_window": 4},
    "BigBirdConfig": _TEXT, "XLNetConfig": dict(vocab_size=VOCABULARY, d_model=24, n_layer=3, n_head=4, d_inner=32),
    "DebertaConfig": _TEXT, "DebertaV2Config": _TEXT, "T5Config": _TEXT | {"d_model": 24, "d_kv": 6, "d_ff": 32,
                                                                           "num_layers": 3, "num_heads": 4},
    "BartConfig": _TEXT | {"d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
                           "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32},
    "OPTConfig": _TEXT | {"ffn_dim": 32, "word_embed_proj_dim": 24}, "GPTNeoXConfig": _TEXT, "GPTJConfig": _TEXT | {
        "n_embd": 24, "n_layer": 3, "n_head": 4, "rotary_dim": 6}, "BloomConfig": _TEXT | {"n_layer": 3, "n_head": 4},
    "LlamaConfig": _GROUPED, "MistralConfig": _GROUPED, "Qwen2Config": _GROUPED, "Qwen3Config": _GROUPED,
    "GemmaConfig": _GROUPED, "Gemma2Config": _GROUPED, "GptOssConfig": _GROUPED | {"num_local_experts": 2},
    "DeiTConfig": _IMAGE | {"architectures": ["DeiTForImageClassification"]}, "BeitConfig": _IMAGE,
    "Dinov2Config": _IMAGE,
    "SwinConfig": dict(image_size=12, patch_size=2, num_channels=2, embed_dim=8, depths=[1, 1], num_heads=[2, 2],
                       window_size=3, num_labels=3),
    "Swinv2Config": dict(image_size=12, patch_size=2, num_channels=2, embed_dim=8, depths=[2], num_heads=[2],
                       window_size=3, num_labels=3),
}  # fmt: skip


def compared(model: torch.nn.Module, batch: dict) -> tuple[float, float]:
    """The largest relative difference of the scores, and the relative gap with 48 points."""
    theirs, _ = reference(model, batch, TARGET, *points_and_weights("right", 5))
    ours = attribute_inputs(model, batch, target=TARGET, steps=5, rule="right")
    fine = attribute_inputs(model, batch, target=TARGET, steps=48, rule="gauss")
    change = (fine.value.double()[:, None] - fine.start).abs().max()
    return difference(ours.scores, theirs), float(fine.gap.abs().max() / change)


def covered(family: str) -> dict:
    """One line of the table of families that the tests cover."""
    images = family == "vit"
    exact = make(family)
    worst, gap = compared(exact, pictures() if images else inputs("right"))
    single = make(family, dtype=torch.float32)
    rough, _ = compared(single, pictures(dtype=torch.float32) if images else inputs("right"))
    shape = attribute_inputs(exact, pictures() if images else inputs("right"), steps=1, rule="gauss").scores.shape
    return dict(zip(COLUMNS, [family, f"{shape[1]} x {shape[2]}", worst, rough, gap], strict=True))


def tried(name: str, settings: dict) -> dict:
    """One line of the table of others: what came out, or the first sentence of the refusal."""
    kind = getattr(transformers, name)
    images = "image_size" in settings
    torch.manual_seed(0)
    auto = AutoModelForImageClassification if images else AutoModelForSequenceClassification
    try:
        model = auto.from_config(kind(**settings), attn_implementation="eager").double().eval()
        batch = pictures() if images else inputs("right")
        ours = attribute_inputs(model, batch, target=TARGET, steps=5, rule="right")
    except UnsupportedModelError as error:
        return {"family": name.removesuffix("Config"), "outcome": f"refused: {str(error).split('. ')[0]}"}
    theirs, _ = reference(model, batch, TARGET, *points_and_weights("right", 5))
    return {"family": name.removesuffix("Config"), "outcome": f"works, {difference(ours.scores, theirs):.0e}"}


def table(rows: Sequence[dict]) -> str:
    """The rows as a Markdown table; nothing for no rows."""
    if not rows:
        return ""
    frame = pd.DataFrame(rows)
    for column in frame.columns.intersection(COLUMNS[2:]):
        frame[column] = frame[column].map("{:.0e}".format)
    lines = [list(frame.columns), ["---"] * len(frame.columns), *frame.astype(str).values.tolist()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], help="families, such as: bert vit Llama")
    parser.add_argument("--write", action="store_true", help="put the tables into notebooks/FAMILIES.md")
    given = parser.parse_args()
    transformers.logging.set_verbosity_error()
    chosen = set(given.only)
    tables = {
        "covered": table([covered(name) for name in EVERY if not chosen or name in chosen]),
        "tried": table([tried(n, s) for n, s in OTHERS.items() if not chosen or n.removesuffix("Config") in chosen]),
    }
    print(*filter(None, tables.values()), sep="\n\n")
    if given.write and not chosen:
        page = PAGE.read_text(encoding="utf-8")
        for name, text in tables.items():
            page = re.sub(f"(<!-- {name} -->\n\n).*?(\n\n<!-- end -->)", rf"\g<1>{text}\g<2>", page, flags=re.S)
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
