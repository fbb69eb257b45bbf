"""A service to test: on loopback, around models that can be held, or that fail."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx
import numpy as np
import torch
import uvicorn
from torch import Tensor

from bibs import Infiller
from bibs.models.recurrent import RecurrentConfig, RecurrentModel
from bibs.serving import ServiceSettings, create_app
from bibs.text import Vocabulary
from bibs.vision import load_image

CAPTIONS = [
    "A man is riding a wave.",
    "A man is riding a horse on the beach.",
    "a man riding a wave on a surfboard",
    "a woman is riding a small wave",
    "the dog is sitting on the beach",
    "a dog is running on the beach with a man",
]
PATIENCE = 60


class HeldModel:
    """Waits at a gate before it says anything; fails where it reads a certain word."""

    def __init__(self, model: Any, bad_token: int | None = None) -> None:
        self.model, self.bad_token, self.vocab_size = model, bad_token, model.vocab_size
        self.gate, self.entered = threading.Event(), threading.Event()
        self.gate.set()
        self.read: list[tuple[int, ...]] = []

    def hold(self) -> None:
        self.gate.clear()
        self.entered.clear()

    def start(self, contexts: Sequence[Sequence[int]], conditions: Any = None) -> Any:
        self.entered.set()
        assert self.gate.wait(PATIENCE)
        self.read += [tuple(context) for context in contexts]
        if any(self.bad_token in context for context in contexts):
            raise RuntimeError("secret words of a user")
        return self.model.start(contexts, conditions)

    def step(self, tokens: Tensor, state: Any) -> Any:
        return self.model.step(tokens, state)


class SizeEncoder:
    """Turns a picture into its mean colour, and counts."""

    name, size = "mean", 4

    def __init__(self) -> None:
        self.encoded = 0

    def encode(self, images: Sequence[Any]) -> Any:
        self.encoded += len(images)
        means = [np.asarray(load_image(image), dtype=np.float32).mean((0, 1)) / 255 for image in images]
        return np.stack([np.append(mean, 1.0) for mean in means]).astype(np.float32)


def counted() -> Infiller:
    return Infiller.from_corpus(CAPTIONS)


def held() -> tuple[Infiller, HeldModel]:
    """An n-gram pair whose forward model can be held, and that fails at the word "horse"."""
    infiller = counted()
    model = HeldModel(infiller.forward, infiller.vocabulary.encode(["horse"])[0])
    infiller.forward = model
    return infiller, model


def seeing() -> tuple[Infiller, SizeEncoder]:
    """Small untrained networks that see pictures."""
    vocabulary = Vocabulary(["a", "cat", "dog", "on", "table"])
    config = RecurrentConfig(vocab_size=len(vocabulary), embedding_size=8, hidden_size=8, condition_size=4)
    encoder = SizeEncoder()
    torch.manual_seed(1)
    models = [RecurrentModel(config).eval() for _ in range(2)]
    for model in models:
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)  # so large that a picture changes the answer
    return Infiller(forward=models[0], backward=models[1], vocabulary=vocabulary, encoder=encoder), encoder


@contextlib.contextmanager
def served(
    infiller: Infiller, settings: ServiceSettings | None = None, **options: Any
) -> Iterator[tuple[str, uvicorn.Server]]:
    """The address of a service in a thread, and its server."""
    config = uvicorn.Config(create_app(infiller, settings, **options), port=0, log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_until(lambda: server.started or not thread.is_alive())
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", server
    finally:
        server.should_exit = True
        thread.join(PATIENCE)


CLIENT = httpx.Client(timeout=PATIENCE, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))
"""One for all, since to make one takes longer than most requests; each request has a connection of its own."""


def post(address: str, body: dict[str, Any], path: str = "/v1/fill", **options: Any) -> httpx.Response:
    return CLIENT.post(address + path, json=body, **options)


def get(address: str, path: str, **options: Any) -> httpx.Response:
    return CLIENT.get(address + path, **options)


def metric(address: str, name: str) -> float:
    text = get(address, "/metrics").text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.002)
    raise AssertionError("it never came true")
