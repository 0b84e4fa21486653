# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the Unicode tables of the tokenizer as a C++ fragment.

The model's tokens are those of the `tokenizers` package, whose tables are of several ages: categories of
Unicode 8.0, combining classes of 9.0, lower case of 17.0. Python's own tables are newer than the first two
and may be older than the third; the short lists below make up the difference, so that the same fragment
comes out of every Python from 3.9 on.
"""

import argparse
import functools
import sys
import unicodedata


def codes_of(*ranges):
    return frozenset(code for first, last in ranges for code in range(first, last + 1))


# Marks, punctuation and decompositions that came after Unicode 8.0 lie in these ranges, and nothing older
# that the tokenizer looks at does. To the tokenizer they are letters like any other.
NEWER = codes_of(
    (0x05C8, 0x05C9), (0x061D, 0x061D), (0x07FD, 0x07FD), (0x0890, 0x08E2), (0x09FD, 0x09FE),
    (0x0A76, 0x0A76), (0x0AFA, 0x0AFF), (0x0B53, 0x0B55), (0x0C04, 0x0C3C), (0x0C77, 0x0C77),
    (0x0C84, 0x0C84), (0x0D00, 0x0D00), (0x0D3B, 0x0D3C), (0x0D81, 0x0D81), (0x0EBA, 0x0EBA),
    (0x0ECE, 0x0ECE), (0x180F, 0x1886), (0x1ABF, 0x1AF0), (0x1B4E, 0x1B4F), (0x1B7D, 0x1B7F),
    (0x1DF6, 0x1DFB), (0x2E43, 0x2E63), (0xA82C, 0xA82C), (0xA8C5, 0xA8C5), (0xA8FF, 0xA8FF),
    (0xA9BD, 0xA9BD), (0x105C9, 0x105E4), (0x10D24, 0x10F89), (0x11070, 0x11074), (0x110C2, 0x110CD),
    (0x111C9, 0x111C9), (0x111CF, 0x111CF), (0x1123E, 0x11241), (0x1133B, 0x1133B), (0x11383, 0x1145E),
    (0x11660, 0x1166C), (0x116B9, 0x116B9), (0x1182F, 0x11FFF), (0x12FF1, 0x1612F), (0x16D68, 0x16F4F),
    (0x16FE2, 0x16FE4), (0x1CF00, 0x1D128), (0x1D25B, 0x1D25C), (0x1E000, 0x1E6F5), (0x1E944, 0x1E95F))

# Categories that changed after 8.0.
STILL_MARK = (0x1734, 0x1171E)
STILL_PUNCTUATION = (0x166D, 0x111C9)

# Combining classes of NEWER that Unicode 9.0 had, and ones elsewhere that it did not have.
NEWER_WITH_CLASS = codes_of(
    (0x08D4, 0x08E1), (0x1DFB, 0x1DFB), (0x11442, 0x11442), (0x11446, 0x11446), (0x11C3F, 0x11C3F),
    (0x1E000, 0x1E02A), (0x1E944, 0x1E94A))
WITHOUT_CLASS = codes_of(
    (0x1715, 0x1715), (0x16FF0, 0x16FF1), (0x1D250, 0x1D252), (0x1D25F, 0x1D25F), (0x1D280, 0x1D281))

# Lower case that came with Unicode 14.0 and later: first, last, distance.
LOWER = {code: code + distance for first, last, distance in (
    (0x1C89, 0x1C89, 1), (0x2C2F, 0x2C2F, 48), (0xA7C0, 0xA7C0, 1), (0xA7CB, 0xA7CB, 0x0264 - 0xA7CB),
    (0xA7CC, 0xA7CC, 1), (0xA7CE, 0xA7CE, 1), (0xA7D0, 0xA7D0, 1), (0xA7D2, 0xA7D2, 1), (0xA7D4, 0xA7D4, 1),
    (0xA7D6, 0xA7D6, 1), (0xA7D8, 0xA7D8, 1), (0xA7DA, 0xA7DA, 1), (0xA7DC, 0xA7DC, 0x019B - 0xA7DC),
    (0x10570, 0x1057A, 39), (0x1057C, 0x1058A, 39), (0x1058C, 0x10592, 39), (0x10594, 0x10595, 39),
    (0x10D50, 0x10D65, 32), (0x16EA0, 0x16EB8, 27)) for code in range(first, last + 1)}

HANGUL = range(0xAC00, 0xD7A4)  # decomposed by arithmetic


@functools.lru_cache(maxsize=None)
def category(code):
    if code in STILL_MARK:
        return 'Mn'
    if code in STILL_PUNCTUATION:
        return 'Po'
    return 'Cn' if code in NEWER else unicodedata.category(chr(code))


def is_punctuation(code):
    ascii_symbol = 33 <= code <= 126 and not chr(code).isalnum()
    return ascii_symbol or category(code)[0] == 'P'


def is_dropped(code):
    """Control, format and private-use characters, except the three that count as white space."""
    return code in (0, 0xFFFD) or (category(code) in ('Cc', 'Cf', 'Co') and code not in (9, 10, 13))


def is_white_space(code):
    return code in (9, 10, 11, 12, 13, 0x85) or unicodedata.category(chr(code)) in ('Zs', 'Zl', 'Zp')


def combining_class(code):
    if code in WITHOUT_CLASS or (code in NEWER and code not in NEWER_WITH_CLASS):
        return 0
    return unicodedata.combining(chr(code))


def decomposition(code):
    if code in HANGUL or code in NEWER:
        return (code,)
    fields = unicodedata.decomposition(chr(code)).split()
    if not fields or fields[0][0] == '<':
        return (code,)
    return tuple(part for field in fields for part in decomposition(int(field, 16)))


def lower(code):
    if code in LOWER:
        return (LOWER[code],)
    return tuple(map(ord, chr(code).lower()))


def codes():
    return (code for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF)


def ranges_of(predicate):
    result = []
    for code in filter(predicate, codes()):
        if result and result[-1][1] == code - 1:
            result[-1][1] = code
        else:
            result.append([code, code])
    return result


def classes():
    result = []
    for code in codes():
        value = combining_class(code)
        if value and result and result[-1][1] == code - 1 and result[-1][2] == value:
            result[-1][1] = code
        elif value:
            result.append([code, code, value])
    return result


def braced(row):
    return '{' + ','.join(braced(part) if isinstance(part, tuple) else hex(part) for part in row) + '}'


def write_rows(out, declaration, rows):
    out.write(f'inline constexpr {declaration}[] = {{\n')
    for row in rows:
        out.write(braced(row) + ',\n')
    out.write('};\n')


def mapping(function):
    return [(code, (mapped + (0, 0, 0, 0))[:4]) for code in codes()
            if (mapped := function(code)) != (code,)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('output')
    arguments = parser.parse_args()
    if sys.version_info < (3, 9):
        parser.exit(1, 'unicode_tables.py: needs Python 3.9 or later\n')
    with open(arguments.output, 'w', encoding='ascii') as out:
        out.write('// Written by unicode_tables.py.\n')
        write_rows(out, 'CodeRange nonspacing_marks', ranges_of(lambda code: category(code) == 'Mn'))
        write_rows(out, 'CodeRange punctuation', ranges_of(is_punctuation))
        write_rows(out, 'CodeRange dropped', ranges_of(is_dropped))
        write_rows(out, 'CodeRange white_space', ranges_of(is_white_space))
        write_rows(out, 'ClassRange combining_classes', classes())
        write_rows(out, 'CodeMapping decompositions', mapping(decomposition))
        write_rows(out, 'CodeMapping lower_case', mapping(lower))


if __name__ == '__main__':
    main()
