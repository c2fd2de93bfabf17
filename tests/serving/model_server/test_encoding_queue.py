"""Long texts hold nobody up: they count by their size, and leave a worker to the others."""

import threading

import pytest

from termweave.serving.model_server.encoding_queue import BATCH, EncodingQueue, QueueFull

LONG = "word " * 40_000


@pytest.fixture
def queue():
    """A function that makes a queue with so many workers."""
    made = []

    def make(workers):
        made.append(EncodingQueue(workers, lambda _: None, lambda: False))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_question_passes_texts_that_are_being_encoded(queue):
    free, batches, workers = threading.Event(), [], queue(2)

    def slow(texts):
        batches.append(len(texts))
        free.wait(30)
        return texts

    large = [workers.submit(("documents", number), slow, [LONG] * 10) for number in range(3)]
    assert workers.submit("questions", list, ["short"]).result(10) == ["short"]
    assert batches == [1]
    free.set()
    assert [answer.result(30) for answer in large] == [[LONG] * 10] * 3
    assert set(batches) == {1}
    assert len(workers) == workers._size == workers._long == 0


def test_with_one_worker_a_question_waits_for_a_text_of_each_request(queue):
    begun, free, order, workers = threading.Event(), threading.Event(), [], queue(1)

    def noted(texts):
        begun.set()
        free.wait(30)
        order.append(len(texts[0]))
        return texts

    large = [workers.submit("documents", noted, [LONG] * 10) for _ in range(3)]
    begun.wait(10)
    question = workers.submit("questions", noted, ["short"])
    free.set()
    for answer in (question, *large):
        answer.result(30)
    assert order.index(5) <= 4  # one had begun
    assert len(order) == 3 * 10 + 1


def test_results_belong_to_their_texts_whoever_asks_at_the_same_time(queue):
    texts, workers = [f"text {number}" for number in range(60)], queue(3)
    parts = [texts[number : number + 1 + number % 20] for number in range(40)]
    answers = [workers.submit(len(part) % 2, lambda batch: [f"{text}!" for text in batch], part) for part in parts]
    assert [answer.result(30) for answer in answers] == [[f"{text}!" for text in part] for part in parts]


def test_a_batch_and_the_queue_have_room_by_size(queue):
    begun, free, batches, workers = threading.Event(), threading.Event(), [], queue(1)

    def noted(texts):
        begun.set()
        free.wait(30)
        batches.append(texts)
        return texts

    first = workers.submit("first", noted, ["begun"])
    begun.wait(10)
    middling = "word " * 1600  # counts as five
    texts = [*["short"] * 20, *[middling] * 4]
    second = workers.submit("second", noted, texts)
    with pytest.raises(QueueFull):
        workers.submit("third", noted, [LONG] * 41)
    free.set()
    first.result(30)
    assert second.result(30) == texts
    assert [len(each) for each in batches] == [1, BATCH, 6, 2]


def test_a_request_larger_than_the_queue_shuts_no_question_out(queue):
    free, workers = threading.Event(), queue(2)
    large = workers.submit("documents", lambda texts: free.wait(30) and texts, [LONG] * 100)
    assert workers._size > 4096
    assert workers.submit("questions", list, ["short"]).result(10) == ["short"]
    with pytest.raises(QueueFull):
        workers.submit("documents", list, [LONG])
    large.cancel()
    free.set()
