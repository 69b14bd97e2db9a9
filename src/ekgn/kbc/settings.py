"""The settings of knowledge base completion: the shared ones and its own."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from ekgn.config import Settings, knob

# What a user gets by default: the departures that pay, each explained in docs/model.md.
BASE: dict[str, Any] = {
    "max_steps": 3,
    "first_norm": "batch",
    "input_dropout": 0.4,
    "output_dropout": 0.4,
    "step_loss": 0.5,
    "optimizer": "adam",
    "learning_rate": 0.002,
    "table_rate": 5.0,
    "decay_from": 0.5,
    "batch_size": 256,
    "epochs": 40,
    "score": "dot",
    "output_tanh": False,
    "modulate_head": True,
    "shared_entities": True,
    "unit_entities": False,
    "negatives": 1000,
    "popular_negatives": 0.5,
    "batch_by": "query",
    "full_softmax_scale": True,
    "rival_answers": True,
    "init_scale": 0.1,
}

DENSE: dict[str, Any] = {
    **BASE,
    "embedding_dim": 256,
    "input_dropout": 0.0,
    "output_dropout": 0.0,
    "size_penalty": 0.01,
    "keep_bias": 2.0,
    "mirror_output": True,
    "relations_by_row": True,
    "deepen_at": 0.8,
    "decay_from": 0.0,
    "epochs": 100,
    "valid_every": 10,
}


class KbcSettings(Settings):
    """Task 1, knowledge base completion: [head, relation] -> tail."""

    embedding_dim: int = knob(100, "size of entity and relation vectors", "k", ge=1)
    score: Literal["l1", "dot"] = knob(
        "l1", "similarity of output and entity: -γ·L1 distance, or inner product", "d(o, y)"
    )
    distance_scale: float = knob(5.0, "scale of the L1 distance", "γ", gt=0)
    mirror_output: bool = knob(
        False, "W_o starts close to the reversal of the head's entries, which gives SimplE's score"
    )
    output_tanh: bool = knob(True, "tanh on the decoder's output", "f_o")
    unit_entities: bool = knob(True, "entity vectors kept at L2 norm 1")
    modulate_head: bool = knob(
        False, "s_1 = [h * (1 + r) ; r]: the relation scales the head's vector, entry by entry"
    )
    shared_entities: bool = knob(False, "one entity table for both input and output")
    relations_by_row: bool = knob(
        False,
        "relation vectors are updated as entity vectors are: those of the batch, at table_rate",
    )
    negatives: int = knob(20, "sampled wrong answers", "|D| - 1", ge=1)
    popular_negatives: float = knob(
        0.0,
        "share of the negatives drawn by how often an entity is an answer, the others uniformly "
        "(with batch_by = query)",
        ge=0,
        lt=1,
    )
    batch_by: Literal["triple", "query"] = knob(
        "triple",
        "an instance is a triple with its own negatives, or a distinct [head, relation] with all "
        "its answers and negatives shared by the batch",
    )
    full_softmax_scale: bool = knob(
        False, "scale the negatives' mass by |E| / samples: the loss estimates the full softmax"
    )
    exact_from: float = knob(
        1.0,
        "share of the epochs after which every entity is a candidate, not only the sampled "
        "(with batch_by = query; 1: never)",
        ge=0,
        le=1,
    )
    rival_answers: bool = knob(
        False,
        "an answer shares the probability with the query's other known answers in the batch, "
        "instead of competing with wrong entities only",
    )
    rules_share: float = knob(
        0.0,
        "share of length-1 rules in an answer whose best rule is certain, and less the less it is; "
        "the network is trained without them (0: no rules)",
        ge=0,
        lt=1,
    )
    init_scale: float = knob(
        0.0, "standard deviation of new entity and relation vectors (0: unit L2 norm)", ge=0
    )

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "base": BASE,
        # Graphs with few facts of an entity, such as WordNet: small vectors instead of dropout, and
        # rules for facts that others say already.
        "sparse": {
            **BASE,
            "input_dropout": 0.1,
            "output_dropout": 0.1,
            "size_penalty": 0.2,
            "rules_share": 0.9,
        },
        # Graphs with many facts that follow from others, such as FB15k, by the network alone: fit
        # matters most.
        "dense": DENSE,
        # The same, with rules for those facts: the network is kept to what generalises.
        "rules": {
            **DENSE,
            "size_penalty": 0.1,
            "rules_share": 0.9,
            "stop_bias": -2.0,
            "keep_bias": 3.0,
            "learning_rate": 0.004,
            "batch_size": 1024,
            "epochs": 24,
            "valid_every": 4,
        },
        "demo": {
            **BASE,
            "max_steps": 4,
            "input_dropout": 0.5,
            "output_dropout": 0.5,
            "learning_rate": 0.003,
            "table_rate": 3.0,
            "batch_size": 128,
            "negatives": 500,
            "epochs": 36,
            "valid_every": 4,
        },
    }
    DEFAULT_PRESET: ClassVar[str] = "base"

    def phases(self) -> list[float]:
        """The shares of the epochs after which an update costs more, or less, than before."""
        return [*super().phases(), self.exact_from]
