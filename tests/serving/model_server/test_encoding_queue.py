"""Long texts hold nobody up: they count by their size, and leave a worker to the others."""

import threading
from contextlib import ExitStack, closing

import pytest

from termweave.serving.model_server.encoding_queue import BATCH, EncodingQueue, QueueFull

LONG = "word " * 40_000


class Held:
    """Encodes nothing before it is set free, and notes the texts of each batch."""

    def __init__(self):
        self.begun, self.free, self.batches = threading.Event(), threading.Event(), []

    def __call__(self, texts):
        self.batches.append(texts)
        self.begun.set()
        self.free.wait(30)
        return texts


@pytest.fixture
def queue():
    """A function that makes a queue with so many workers."""
    with ExitStack() as ending:
        yield lambda workers: ending.enter_context(closing(EncodingQueue(workers, lambda _: None, lambda: False)))


def test_a_question_passes_texts_that_are_being_encoded(queue):
    held, workers = Held(), queue(2)
    large = [workers.submit(("documents", number), held, [LONG] * 10) for number in range(3)]
    assert workers.submit("questions", list, ["short"]).result(10) == ["short"]
    assert held.batches == [[LONG]]
    held.free.set()
    assert [answer.result(30) for answer in large] == [[LONG] * 10] * 3
    assert held.batches == [[LONG]] * 30
    assert len(workers) == workers._size == workers._long == 0


def test_with_one_worker_a_question_waits_for_a_text_of_each_request(queue):
    held, workers = Held(), queue(1)
    large = [workers.submit("documents", held, [LONG] * 10) for _ in range(3)]
    held.begun.wait(10)
    question = workers.submit("questions", held, ["short"])
    held.free.set()
    for answer in (question, *large):
        answer.result(30)
    assert held.batches.index(["short"]) <= 4  # one had begun
    assert len(held.batches) == 3 * 10 + 1


def test_results_belong_to_their_texts_whoever_asks_at_the_same_time(queue):
    texts, workers = [f"text {number}" for number in range(60)], queue(3)
    parts = [texts[number : number + 1 + number % 20] for number in range(40)]
    answers = [workers.submit(len(part) % 2, lambda batch: [f"{text}!" for text in batch], part) for part in parts]
    assert [answer.result(30) for answer in answers] == [[f"{text}!" for text in part] for part in parts]


def test_a_batch_and_the_queue_have_room_by_size(queue):
    held, workers = Held(), queue(1)
    first = workers.submit("first", held, ["begun"])
    held.begun.wait(10)
    middling = "word " * 1600  # counts as five
    texts = [*["short"] * 20, *[middling] * 4]
    second = workers.submit("second", held, texts)
    with pytest.raises(QueueFull):
        workers.submit("third", held, [LONG] * 41)
    held.free.set()
    first.result(30)
    assert second.result(30) == texts
    assert [len(each) for each in held.batches] == [1, BATCH, 6, 2]


def test_a_request_larger_than_the_queue_shuts_no_question_out(queue):
    held, workers = Held(), queue(2)
    large = workers.submit("documents", held, [LONG] * 100)
    assert workers._size > 4096
    assert workers.submit("questions", list, ["short"]).result(10) == ["short"]
    with pytest.raises(QueueFull):
        workers.submit("documents", list, [LONG])
    large.cancel()
    held.free.set()
