"""Load, overload and fuzz of `bibs serve`, on loopback, bounded in count and time.

    python benchmarks/serve.py                     # all of them, about three minutes
    python benchmarks/serve.py throughput latency  # some

throughput   32 clients against one: requests a second, and whether the answers are the same
latency      one client, text only, known length: the service and the library call in turn
overload     ten times as many requests as can be answered, for --seconds; then how soon all is well again
malformed    --count wrong requests: no 500, no traceback, alive
term         SIGTERM under load: every answer that the service gave has arrived

Client and service share the machine, maybe with others: what part of its cores the service got is said. Exit code 1 if
a promise is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import malformed
from http_line import Line, Served, served

from bibs import Infiller

SUBJECTS = ["a man", "a woman", "two people", "a dog", "a cat", "a group of people", "a small child", "a bird"]
ENDS = ["a wave", "the beach", "a table", "the snow", "a bench", "the street", "a field", "the water"]
NUM_CLIENTS = 32
OVERLOAD = 10
MEMORY = 512
"""MiB that a service may grow by: the bound on what one search remembers."""


def templates() -> list[str]:
    """Two to four missing words each, all different."""
    ends = [f"{end}{more}" for more in ("", " today", " outside", " with a friend") for end in ENDS]
    pairs = [(subject, end) for end in ends for subject in SUBJECTS]
    return [f"{subject} {'_ ' * (2 + number % 3)}{end}" for number, (subject, end) in enumerate(pairs)]


def body_of(template: str) -> bytes:
    return json.dumps({"template": template}).encode()


def texts_of(body: bytes) -> list[str]:
    return [completion["text"] for result in json.loads(body)["results"] for completion in result["completions"]]


async def ask_all(port: int, asked: Sequence[str], num_clients: int) -> dict[str, list[str]]:
    """Every template once, by so many clients that each wait for their answer before they ask again."""
    waiting = collections.deque(asked)
    found: dict[str, list[str]] = {}

    async def client() -> None:
        line = Line(port)
        while waiting:
            template = waiting.popleft()
            status, body = await line.ask(body_of(template))
            assert status == 200, (status, body)
            found[template] = texts_of(body)
        line.close()

    await asyncio.gather(*(client() for _ in range(num_clients)))
    return found


def throughput(service: Served, options: argparse.Namespace) -> bool:
    asked = {1: templates()[::4], NUM_CLIENTS: templates()}
    asyncio.run(ask_all(service.port, asked[1][:8], 4))  # warm up
    rates: dict[int, list[float]] = {number: [] for number in asked}
    spent: dict[int, list[float]] = {number: [] for number in asked}
    answers: list[dict[str, list[str]]] = []
    for _ in range(options.repeats):  # in turn, so that both see the same neighbours
        for number, texts in asked.items():
            began, used = time.perf_counter(), service.processor_seconds()
            answers.append(asyncio.run(ask_all(service.port, texts, number)))
            rates[number].append(len(texts) / (time.perf_counter() - began))
            spent[number].append(1000 * (service.processor_seconds() - used) / len(texts))
    one, many = max(rates[1]), max(rates[NUM_CLIENTS])
    own, shared = min(spent[1]), min(spent[NUM_CLIENTS])
    same = all(answer[text] == answers[1][text] for answer in answers for text in answer)
    print(f"throughput: 1 client {one:.1f} a second, {NUM_CLIENTS} clients {many:.1f}: x {many / one:.2f};")
    print(f"            processor time a request {own:.1f} ms and {shared:.1f} ms: x {own / shared:.2f};")
    print(f"            best of {options.repeats}; answers {'identical' if same else 'DIFFER'}")
    return same and many / one >= 4


def latency(service: Served, options: argparse.Namespace) -> bool:
    infiller = Infiller.from_pretrained()
    asked = templates()[::4]

    async def measure() -> tuple[list[float], list[float]]:
        line, over_http, alone = Line(service.port), list[float](), list[float]()
        for template in [*asked[:4], *asked * options.repeats]:
            for seconds, call in ((over_http, True), (alone, False)):
                began = time.perf_counter()
                if call:
                    await line.ask(body_of(template))
                else:
                    infiller(template)
                seconds.append(time.perf_counter() - began)
        line.close()
        return over_http[4:], alone[4:]

    over_http, alone = asyncio.run(measure())
    p95, own_p95 = (1000 * statistics.quantiles(each, n=20)[-1] for each in (over_http, alone))
    median, own = (1000 * statistics.median(each) for each in (over_http, alone))
    print(f"latency: service p95 {p95:.1f} ms, median {median:.1f}; library p95 {own_p95:.1f} ms, median {own:.1f};")
    print(f"         p95 to p95 x {p95 / own_p95:.2f}, median to median x {median / own:.2f}")
    return p95 / own_p95 < 1.5


def overload(service: Served, options: argparse.Namespace) -> bool:
    asked = templates()
    before = service.memory()
    capacity = len(asked) / _seconds(lambda: asyncio.run(ask_all(service.port, asked, NUM_CLIENTS)))
    rate = OVERLOAD * capacity
    statuses: collections.Counter[int | str] = collections.Counter()
    waits: list[float] = []
    peak = before

    async def one(number: int, lines: list[Line]) -> None:
        line = lines.pop() if lines else Line(service.port)
        began = time.perf_counter()
        try:
            status, _ = await asyncio.wait_for(line.ask(body_of(asked[number % len(asked)])), 60)
            statuses[status] += 1
            if status == 200:
                waits.append(time.perf_counter() - began)
            lines.append(line)
        except OSError as error:
            statuses[type(error).__name__] += 1
        except asyncio.TimeoutError:
            statuses["no answer within 60 s"] += 1

    async def flood() -> tuple[int, float]:
        nonlocal peak
        lines: list[Line] = []
        tasks: set[asyncio.Task[None]] = set()
        began, number = time.perf_counter(), 0
        while (now := time.perf_counter() - began) < options.seconds:
            while number < rate * now:
                tasks.add(task := asyncio.create_task(one(number, lines)))
                task.add_done_callback(tasks.discard)
                number += 1
            peak = max(peak, service.memory())
            await asyncio.sleep(0.01)
        begun_to_end = time.perf_counter()
        line = Line(service.port)
        while (await line.ask(body_of(asked[0])))[0] != 200:  # normal service again
            await asyncio.sleep(0.05)
        back = time.perf_counter() - begun_to_end
        await asyncio.gather(*tasks)
        return number, back

    number, back = asyncio.run(flood())
    sent = number / options.seconds
    print(
        f"overload: {capacity:.1f} a second can be answered; for {options.seconds:g} s, {sent:.0f} a second were sent"
    )
    print(f"          ({sent / capacity:.1f} x): {dict(statuses)} of {number};")
    print(f"          answers took {statistics.median(waits):.2f} s (median), {max(waits):.2f} s (most);")
    print(f"          memory {before:.0f} -> at most {peak:.0f} MiB; normal again after {back:.2f} s")
    answered = set(statuses) <= {200, 503} and sum(statuses.values()) == number
    return answered and service.process.poll() is None and peak - before < MEMORY and back < 2


def malformed_requests(service: Served, options: argparse.Namespace) -> bool:
    draw = random.Random(0)
    wrong = [malformed.make(draw) for _ in range(options.count)]
    waiting = collections.deque(wrong)
    statuses: collections.Counter[int | str] = collections.Counter()
    bad: list[malformed.Wrong] = []

    async def client() -> None:
        line = Line(service.port)
        while waiting:
            each = waiting.popleft()
            try:
                if each.raw is not None:
                    answer = line.send(each.raw)
                else:
                    answer = line.ask(each.body, path=each.path, verb=each.verb, kind=each.kind, more=each.more)
                status, body = await asyncio.wait_for(answer, 60)
            except (OSError, asyncio.TimeoutError) as error:
                statuses[type(error).__name__] += 1
                line.close()
                continue
            statuses[status] += 1
            if status >= 500 or b"Traceback" in body or b'File "' in body:
                bad.append(each)
        line.close()

    async def all_clients() -> None:
        await asyncio.gather(*(client() for _ in range(8)))

    asyncio.run(all_clients())
    (alive,) = asyncio.run(ask_all(service.port, templates()[:1], 1)).values()
    print(f"malformed: {len(wrong)} requests: {dict(sorted(statuses.items(), key=str))};")
    print(f"           {len(bad)} faults or tracebacks; alive after: {alive == expected_alive(service)}")
    for each in bad[:3]:
        print(f"           {str(each)[:300]}")
    return not bad and service.process.poll() is None


def expected_alive(service: Served) -> list[str]:
    return [Infiller.from_pretrained()(templates()[0])[0].text]


def term(options: argparse.Namespace) -> bool:
    """Clients ask as fast as they can; after SIGTERM, what the log calls answered must have arrived."""
    service = Served()
    statuses: collections.Counter[int | str] = collections.Counter()
    ended = False

    async def client(number: int) -> None:
        line = Line(service.port)
        while not ended:
            try:
                statuses[(await line.ask(body_of(templates()[number])))[0]] += 1
            except OSError as error:
                statuses[type(error).__name__] += 1
                break
        line.close()

    async def storm() -> float:
        nonlocal ended
        clients = [asyncio.create_task(client(number)) for number in range(64)]
        await asyncio.sleep(3)
        service.process.terminate()
        began = time.perf_counter()
        while service.process.poll() is None:
            await asyncio.sleep(0.05)
        ended = True
        await asyncio.gather(*clients)
        return time.perf_counter() - began

    seconds = asyncio.run(storm())
    lines = [json.loads(line) for line in service.log.read_text().splitlines()]
    given = collections.Counter(line["status"] for line in lines if line.get("path") == "/v1/fill")
    service.end()
    lost = sum(given.values()) - statuses[200] - statuses[503]
    print(f"term: 64 clients; the service accepted and answered {dict(given)}, the clients received {dict(statuses)};")
    print(f"      {lost} lost; it ended {seconds:.2f} s after SIGTERM")
    return lost == 0 and given[200] > 0


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


PARTS = {"throughput": throughput, "latency": latency, "overload": overload, "malformed": malformed_requests}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "term", []], default=[*PARTS, "term"])
    parser.add_argument("--seconds", type=float, default=60, help="of overload")
    parser.add_argument("--count", type=int, default=10_000, help="of malformed requests")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    kept = True
    for name in options.parts:
        if name == "term":
            kept &= term(options)
        else:
            with served("--quiet") as service:
                kept &= PARTS[name](service, options)
                print(
                    f"  (the service had a core {100 * service.share_of_cores():.0f} % of the time that it wanted one)"
                )
        sys.stdout.flush()
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
