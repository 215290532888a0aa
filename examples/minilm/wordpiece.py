"""Text to numbers of pieces, as BERT's uncased models were trained on it.

    text -> lower case, accents off -> words and punctuation -> longest pieces of vocab.txt
"""
import unicodedata

UNKNOWN, FIRST, LAST = "[UNK]", "[CLS]", "[SEP]"
IDEOGRAPHS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2CEAF), (0x2F800, 0x2FA1F))
LONGEST_WORD = 100  # characters; a longer one is unknown


def is_punctuation(c):
    return unicodedata.category(c)[0] == "P" or (ord(c) < 128 and c.isprintable() and not c.isalnum() and c != " ")


def is_ideograph(c):
    """Chinese characters are words of their own."""
    return any(first <= ord(c) <= last for first, last in IDEOGRAPHS)


def words(text):
    text = unicodedata.normalize("NFD", text.lower())
    spread = ""
    for c in text:
        kind = unicodedata.category(c)
        if kind == "Mn" or c in "\0\ufffd" or (kind[0] == "C" and not c.isspace()):
            continue
        spread += f" {c} " if is_punctuation(c) or is_ideograph(c) else c
    return spread.split()


class WordPiece:
    def __init__(self, path):
        with open(path, encoding="utf-8") as lines:
            self.number = {line.rstrip("\n"): i for i, line in enumerate(lines)}

    def pieces(self, word):
        found, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in self.number:
                    break
            else:
                return [UNKNOWN]
            found.append(piece)
            start = end
        return found if len(word) <= LONGEST_WORD else [UNKNOWN]

    def __call__(self, text, most):
        """At most `most` numbers, with those of the beginning and the end."""
        found = [piece for word in words(text) for piece in self.pieces(word)]
        return [self.number[p] for p in [FIRST] + found[:most - 2] + [LAST]]
