"""Four sentences tell the seven languages apart, and choose the analyzer."""

import pytest

from termweave import encoders

TEXTS = {
    "german": "Die Pumpe fördert das Wasser in den Tank. Der Filter wird jeden Monat gereinigt. Das Ventil ist nicht dicht und muss ersetzt "
    "werden. Für die Wartung sind zwei Personen nötig.",
    "french": "La pompe pousse l'eau dans le réservoir. Le filtre est nettoyé tous les mois. La vanne n'est pas étanche et il faut la changer. "
    "Pour les travaux, deux personnes sont nécessaires.",
    "spanish": "La bomba lleva el agua al depósito. El filtro se limpia todos los meses. La válvula no es estanca y hay que cambiarla. Para los "
    "trabajos se necesitan dos personas con experiencia.",
    "portuguese": "A bomba leva a água para o tanque. O filtro é limpo todos os meses. A válvula não está bem fechada e tem de ser trocada. Para "
    "os trabalhos são precisas duas pessoas com experiência em bombas.",
    "italian": "La pompa porta l'acqua nel serbatoio. Il filtro si pulisce ogni mese. La valvola non è stagna e deve essere cambiata. Per i lavori "
    "sono necessarie due persone con esperienza della macchina.",
    "dutch": "De pomp brengt het water naar de tank. Het filter wordt elke maand schoongemaakt. De klep is niet dicht en moet worden vervangen. "
    "Voor het werk zijn twee personen nodig.",
    "russian": "Насос подаёт воду в бак. Фильтр чистят каждый месяц, и это не трудно. Клапан не закрыт, и его надо заменить. Для работы нужны "
    "два человека, но не более.",
}


@pytest.fixture(scope="module")
def encoder():
    return encoders.load()


@pytest.mark.parametrize("language", TEXTS)
def test_four_sentences_suffice(encoder, language):
    for coverage in encoder.familiarity([TEXTS[language]]).values():
        assert coverage.verdict == "foreign"
        assert coverage.analyzer == language


def test_english_stays_english(encoder):
    text = (
        "The pump brings the water to the tank. The filter is cleaned every month. The valve is not tight and has to be replaced. Two persons are "
        "needed for the work in the van de Graaff building of La Jolla."
    )
    for coverage in encoder.familiarity([text]).values():
        assert coverage.verdict == "known"
        assert coverage.analyzer == "english"
