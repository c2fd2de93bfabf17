"""Small texts in seven languages, and queries with other forms of their words: query -> place of the text that answers it."""

CORPORA = {
    "german": [
        "Die Pumpe fördert das Wasser in den Tank. Der Filter wird jeden Monat gereinigt, weil er sonst nicht dicht ist.",
        "In den alten Häusern der Stadt wohnen viele Familien. Die Mieten sind dort höher als auf dem Land.",
        "Der Zug nach Hamburg fährt um acht Uhr ab. Eine Fahrkarte für Kinder kostet die Hälfte und gilt auch am Sonntag.",
        "Das Brot wird mit Mehl, Wasser und Salz gebacken. Es bleibt in einem Tuch länger frisch als im Kühlschrank.",
    ],
    "french": [
        "La pompe pousse l'eau dans le réservoir. Le filtre est nettoyé tous les mois, sinon il n'est pas étanche.",
        "Les vieilles maisons de la ville sont habitées par des familles nombreuses. Les loyers y sont plus élevés qu'à la campagne.",
        "Le train pour Lyon part à huit heures. Un billet pour enfants coûte la moitié et il est valable le dimanche.",
        "Le pain est cuit avec de la farine, de l'eau et du sel. Dans un linge il reste frais plus longtemps.",
    ],
    "spanish": [
        "La bomba lleva el agua al depósito. El filtro se limpia todos los meses, porque si no la válvula no es estanca.",
        "En las casas viejas de la ciudad viven muchas familias. Los alquileres son más altos que en el campo.",
        "El tren para Sevilla sale a las ocho. Un billete para niños cuesta la mitad y vale también los domingos.",
        "El pan se hace con harina, agua y sal. Envuelto en un paño está fresco más tiempo que en la nevera.",
    ],
    "portuguese": [
        "A bomba leva a água para o tanque. O filtro é limpo todos os meses, porque a válvula não está bem fechada.",
        "Nas casas velhas da cidade moram muitas famílias. As rendas são mais altas do que no campo.",
        "O comboio para o Porto parte às oito horas. Um bilhete para crianças custa metade e também vale aos domingos.",
        "O pão é feito com farinha, água e sal. Num pano fica fresco mais tempo do que no frigorífico.",
    ],
    "italian": [
        "La pompa porta l'acqua nel serbatoio. Il filtro si pulisce ogni mese, perché la valvola non è stagna.",
        "Nelle vecchie case della città abitano molte famiglie. Gli affitti sono più alti che in campagna.",
        "Il treno per Torino parte alle otto. Un biglietto per bambini costa la metà e vale anche di domenica.",
        "Il pane si fa con farina, acqua e sale. In un panno resta fresco più a lungo che nel frigorifero.",
    ],
    "dutch": [
        "De pomp brengt het water naar de tank. Het filter wordt elke maand schoongemaakt, omdat de klep niet dicht is.",
        "In de oude huizen van de stad wonen veel families. De huren zijn er hoger dan op het platteland.",
        "De trein naar Utrecht vertrekt om acht uur. Een kaartje voor kinderen kost de helft en geldt ook op zondag.",
        "Het brood wordt met meel, water en zout gebakken. In een doek blijft het langer vers dan in de koelkast.",
    ],
    "russian": [
        "Насос подаёт воду в бак. Фильтр чистят каждый месяц, потому что клапан не закрыт и это опасно.",
        "В старых домах города живут большие семьи. Платят за квартиры там больше, чем в деревне.",
        "Поезд на Москву отходит в восемь часов. Билет для детей стоит половину, и он годен по воскресеньям.",
        "Хлеб пекут из муки, воды и соли. В полотенце он остаётся свежим дольше, чем в холодильнике.",
    ],
}
QUERIES = {
    "german": {"Pumpen reinigen": 0, "Haus in Städten": 1, "Fahrkarten für das Kind": 2, "ein frisches Brot backen": 3},
    "french": {"pompes et filtres": 0, "une maison à la ville": 1, "les billets d'un enfant": 2, "pains frais": 3},
    "spanish": {"las bombas y los filtros": 0, "una casa vieja": 1, "billetes de niño": 2, "panes frescos": 3},
    "portuguese": {"bombas e filtros": 0, "uma casa velha": 1, "bilhetes de criança": 2, "os pães frescos": 3},
    "italian": {"pompe e filtri": 0, "una vecchia casa": 1, "i biglietti del bambino": 2, "la farina fresca": 3},
    "dutch": {"pompen en filters": 0, "een oud huis": 1, "kaartjes voor een kind": 2, "verse broden bakken": 3},
    "russian": {"насосы и фильтры": 0, "большой дом в городах": 1, "билеты на поезда": 2, "свежий хлеб в полотенцах": 3},
}
