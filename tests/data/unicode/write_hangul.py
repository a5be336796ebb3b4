#!/usr/bin/env python3
"""Writes hangul_nfc.txt: NFC of Hangul as Python's unicodedata has it. A line is the code points of
the text and of its NFC, in hexadecimal. Every leading consonant with every vowel and every final
one has a test by its formula; here are the ends of each kind and what lies beyond them, in all
orders, and every syllable that U+11A7 could follow."""
import pathlib
import unicodedata

leads = [0x10FF, 0x1100, 0x1112, 0x1113]
vowels = [0x1160, 0x1161, 0x1175, 0x1176]
finals = [0x11A7, 0x11A8, 0x11C2, 0x11C3]
others = [0x61, 0x301, 0xAC00, 0xAC01, 0xD788, 0xD7A3, 0xD7A4]

texts = set()
for a in leads + others:
    for b in vowels + finals + others:
        texts.add((a, b))
        for c in finals + others:
            texts.add((a, b, c))
            if c in (0x11A7, 0x11A8):
                texts.add((a, b, c, 0x11A8))
for syllable in range(0xAC00, 0xD7A4, 28):  # those without a final consonant
    texts.add((syllable, 0x11A7))

lines = []
for text in sorted(texts):
    made = unicodedata.normalize("NFC", "".join(map(chr, text)))
    lines.append(" ".join(f"{p:X}" for p in text) + " = " + " ".join(f"{ord(c):X}" for c in made))
target = pathlib.Path(__file__).with_name("hangul_nfc.txt")
target.write_text("\n".join(lines) + "\n")
