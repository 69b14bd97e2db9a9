"""The settings of knowledge base completion: the shared ones and its own."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from ekgn.config import Settings, knob

STEPS = 1  # the phase that trains the steps

# What a user gets by default: sizes and penalty are chosen for the graph (ekgn.kbc.choose).
AUTO: dict[str, Any] = {
    "first_answer": "complex",
    "embedding_dim": 0,
    "negatives": -1,
    "penalty": -1.0,
    "max_steps": 3,
    "held_out": -1.0,
    "steps_from": -1.0,
    "tables_from": 0.85,
    "change_penalty": 0.2,
    "dropout": 0.5,
    "objective": "log",
    "step_loss": 0.5,
    "optimizer": "adagrad",
    "learning_rate": 0.0,
    "decay_from": 0.5,
    "batch_size": 0,
    "epochs": 20,
    "valid_every": 2,
}


class KbcSettings(Settings):
    """Task 1, knowledge base completion: [head, relation] -> tail."""

    first_answer: Literal["concatenation", "distmult", "complex", "rescal"] = knob(
        "concatenation",
        "how head and relation make the first answer: the paper's [h ; r], or a product, whose "
        "score with one step is that of DistMult, ComplEx or RESCAL",
        "s_1, o_1",
    )
    embedding_dim: int = knob(
        100, "size of entity and relation vectors (0: chosen by the graph)", "k", ge=0, le=65_536
    )
    batch_size: int = knob(64, "instances in a mini-batch (0: chosen by the graph)", ge=0, le=10**7)
    learning_rate: float = knob(
        0.01, "step size at the start (0: by the penalty, over a product)", ge=0, le=1e6
    )
    optimizer: Literal["sgd", "adagrad"] = knob(
        "sgd",
        "how parameters are updated: all by SGD; or the tables by Adagrad, the network by Adam",
    )
    network_rate: float = knob(
        0.001, "step size of Adam, where the tables are updated by Adagrad", gt=0, le=1e6
    )
    distance_scale: float = knob(
        5.0, "scale of the L1 distance of output and entity (paper's form)", "γ", gt=0, le=1e6
    )
    negatives: int = knob(
        20,
        "sampled wrong answers: of each triple in the paper's form; over a product shared by the "
        "batch and weighted to stand for all (sampled softmax), 0 for every entity (1vsAll), "
        "-1: chosen by the graph",
        "|D| - 1",
        ge=-1,
        le=10**7,
    )
    valid_candidates: int = knob(
        -1,
        "entities that validation ranks among, drawn by seed and named in its metrics (0: all; "
        "-1: all, unless that takes too long: docs/scale.md)",
        ge=-1,
        le=10**9,
    )
    penalty: float = knob(
        0.0,
        "weight of |h|³ + |r|³ + |t|³ of each training fact (N3), over a product (-1: chosen by "
        "short trainings, on validation)",
        ge=-1,
        le=1e6,
    )
    state_size: int = knob(
        256, "size of the states over a product (the paper's: 2k)", "|s|", ge=1, le=65_536
    )
    held_out: float = knob(
        0.0,
        "share of the training facts that the product sees last: the steps are trained on them "
        "(stacking); 0: the steps are trained on all (-1: chosen by the graph and the time)",
        ge=-1,
        lt=1,
    )
    steps_from: float = knob(
        0.0,
        "share of the training that trains the product alone; then its tables rest, and the steps "
        "are trained over them (-1: chosen by the graph and the time)",
        ge=-1,
        le=1,
    )
    tables_from: float = knob(
        1.0,
        "share of the training after which the steps rest, and the product is trained on all "
        "facts, those held out among them",
        ge=0,
        le=1,
    )
    change_penalty: float = knob(
        0.0, "weight of |o_t - o_1|², what the steps change of the first answer", ge=0, le=1e6
    )
    dropout: float = knob(
        0.0, "dropout on head, first state and later states, over a product", ge=0, lt=1
    )
    tables: Literal["auto", "replicated", "sharded"] = knob(
        "auto",
        "entity vectors of several processes: each has all, or each has its rows and asks the "
        "others for theirs (auto: by what is exchanged and kept)",
    )

    @property
    def dense_rate(self) -> float:
        """The step size at the start of what is no table."""
        return self.network_rate if self.optimizer == "adagrad" else self.learning_rate

    @property
    def has_product(self) -> bool:
        """Whether the first answer is a product, not the paper's."""
        return self.first_answer != "concatenation"

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        # To the letter: equation 2 is maximised as printed.
        "paper": {"objective": "expected"},
        # The paper with the gradient of its authors' first version, which is that of log J.
        "paper-log": {"objective": "log"},
        "auto": AUTO,
        # The same with one more lookup to show, on the bundled graph.
        "demo": {**AUTO, "max_steps": 4},
    }
    DEFAULT_PRESET: ClassVar[str] = "auto"

    def phases(self) -> list[float]:
        """The shares at which the product, the steps, and the product again begin."""
        if not self.has_product or self.max_steps == 1:
            return [0.0]
        return [0.0, self.steps_from, self.tables_from if self.held_out else 1.0]

    def phase(self, done: float) -> int:
        """Which phase comes next when so much of the training is over."""
        return sum(done >= start for start in self.phases()[1:])
