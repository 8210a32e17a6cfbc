"""A small random BERT in a folder, as transformers saves one."""

import texts
import torch
from transformers import BertConfig, BertForSequenceClassification


def save_tiny(folder, *, labels=("bad", "good"), cls=BertForSequenceClassification, seed=0, **changes):
    """Save a small random model and its tokenizer; the same weights for the same seed."""
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=60, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32,
        max_position_embeddings=40, **{"initializer_range": 0.3, **changes}, id2label=dict(enumerate(labels)),
        label2id={name: i for i, name in enumerate(labels)},
    )  # fmt: skip
    cls(config).save_pretrained(folder)
    texts.tokenizer_for("bert").save_pretrained(folder)
    return folder
