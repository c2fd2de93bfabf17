"""The words that a ranker's logit depends on."""

import random

from termweave.rerank import occlusion


class Weighed:
    """The logit is the sum of the weights of a text's words; how many texts were scored is counted."""

    def __init__(self, **weights):
        self.weights, self.scored = weights, 0

    def __call__(self, texts):
        self.scored += len(texts)
        return [sum(self.weights.get(word.strip(".,").lower(), 0.0) for word in text.split()) for text in texts]


def test_the_effect_of_a_word_is_what_the_logit_loses_without_all_of_its_places():
    score = Weighed(cat=2.0, dog=-1.0, mat=0.5)
    effects = occlusion.effects("The cat, the dog and the Cat on a mat.", score)
    assert effects[:3] == [
        {"word": "cat", "effect": 4.0},
        {"word": "dog", "effect": -1.0},
        {"word": "mat", "effect": 0.5},
    ]
    assert {each["word"] for each in effects[3:]} == {"the", "and", "on", "a"}


def test_a_long_text_is_searched_by_parts_first():
    words = [f"word{number}" for number in range(400)]
    random.Random(1).shuffle(words)
    score = Weighed(word7=3.0, word300=-2.0)
    effects = occlusion.effects(" ".join(words), score)
    assert effects[:2] == [{"word": "word7", "effect": 3.0}, {"word": "word300", "effect": -2.0}]
    assert len(effects) == occlusion.SHOWN
    assert score.scored <= 1 + 16 + 64


def test_words_of_scripts_without_blanks_and_texts_without_words():
    assert list(occlusion.places("世界 it's état")) == ["世", "界", "it's", "état"]
    assert occlusion.effects("...", Weighed()) == []
