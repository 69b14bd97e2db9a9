"""The settings of shortest path synthesis: the shared ones and its own."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from ekgn.config import Settings, knob


class PathsSettings(Settings):
    """Task 2, shortest path synthesis: [start, end] -> the nodes in between."""

    system: Literal["ekgn", "seq2seq"] = knob(
        "ekgn",
        "the network, or a GRU that reads start and end before the paper's kind of decoder",
    )
    optimizer: Literal["sgd", "adam"] = knob("sgd", "how parameters are updated")
    embedding_dim: int = knob(64, "size of node vectors; the state is twice that", ge=1)
    decoder_size: int = knob(128, "cells of the GRU decoder, with lookups once", ge=1)
    first_norm: Literal["none", "layer"] = knob("none", "normalisation of the first state s_1")
    input_dropout: float = knob(0.0, "dropout on the first state", ge=0, lt=1)
    output_dropout: float = knob(
        0.0, "dropout on the outputs, one mask for all steps of a query", ge=0, lt=1
    )
    stop_bias: float = knob(0.0, "initial bias of the stop probability", "b_c", ge=-100, le=100)
    init_scale: float = knob(1.0, "standard deviation of new node vectors", gt=0)
    tie_nodes: bool = knob(False, "one node table for encoder, decoder input and decoder output")
    lookups: Literal["once", "parts"] = knob(
        "once",
        "once: one output, from which a GRU writes the whole path (the paper's); parts: for every "
        "part of a path, [its start, its end], the node after the one and before the other",
    )
    decoder_dropout: float = knob(
        0.0, "dropout on the inputs of a GRU decoder (lookups once, or seq2seq)", ge=0, lt=1
    )
    subpaths: bool = knob(
        False, "train on every contiguous sub-path of the training paths, itself a shortest path"
    )
    beam: int = knob(1, "paths kept while decoding (1: greedy)", ge=1)
    emit: Literal["any", "seen_nodes", "seen_edges"] = knob(
        "any", "what may be emitted: any node, nodes seen in training, or along edges seen there"
    )

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "base": {
            "objective": "log",
            "first_norm": "layer",
            "input_dropout": 0.05,
            "output_dropout": 0.05,
            "stop_bias": -1.0,
            "step_loss": 0.5,
            "optimizer": "adam",
            "learning_rate": 0.01,
            "decay_from": 0.3,
            "clip_norm": 1.0,
            "batch_size": 256,
            "epochs": 40,
            "valid_every": 10,
            "init_scale": 0.1,
            "tie_nodes": True,
            "lookups": "parts",
            "beam": 4,
        },
    }
    DEFAULT_PRESET: ClassVar[str] = "base"
