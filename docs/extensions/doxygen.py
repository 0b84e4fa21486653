# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Public declarations of C++ and C by their headers, from Doxygen's XML, as reStructuredText for Sphinx's domains.

Breathe is not used: it shows files and namespaces as Doxygen has them, with `detail` in each, the version's namespace
in every name, and nothing of what the tables of options say of their members.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import subprocess
import xml.etree.ElementTree as ElementTree

VERSION = "v"  # what the inline namespace of the version is called for Doxygen; removed from all names
SETTINGS = {
    "PROJECT_NAME": "Attikos", "RECURSIVE": "YES", "FILE_PATTERNS": "*.hpp *.h", "EXTENSION_MAPPING": "h=C",
    "GENERATE_HTML": "NO", "GENERATE_LATEX": "NO", "GENERATE_XML": "YES", "XML_PROGRAMLISTING": "NO",
    "EXTRACT_ALL": "YES", "QUIET": "YES", "MACRO_EXPANSION": "YES", "AUTOLINK_SUPPORT": "YES", "WARNINGS": "YES",
    "WARN_IF_INCOMPLETE_DOC": "NO", "WARN_AS_ERROR": "FAIL_ON_WARNINGS", "WARN_LOGFILE": "warnings.txt",
    # Internals of the kernels, which this reads with difficulty and nobody looks up here.
    "EXCLUDE_PATTERNS": "*/attikos/host/* */core/simd* */core/tile.hpp *_problem.hpp",
    "PREDEFINED": f"ATTIKOS_VERSION_NAMESPACE={VERSION} ATTIKOS_API= KOKKOS_INLINE_FUNCTION=inline KOKKOS_FUNCTION= "
                  "KOKKOS_FORCEINLINE_FUNCTION=inline KOKKOS_DEFAULTED_FUNCTION=inline __attribute__(x)= "
                  '"ATTIKOS_ENUM(name)=enum name" __cplusplus=202002L',
}  # fmt: skip


def run(root: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Runs Doxygen over the public headers; where its XML lies. Its warnings are errors."""
    folder.mkdir(parents=True, exist_ok=True)
    headers = [root / "include/attikos", root / "bindings/c/include"]
    read = [file for top in headers for file in top.rglob("*.h*")]
    newest = max(file.stat().st_mtime for file in [*read, pathlib.Path(__file__)])
    index = folder / "xml/index.xml"
    if index.exists() and index.stat().st_mtime > newest:
        return index.parent
    settings = SETTINGS | {
        "INPUT": " ".join(f'"{top}"' for top in headers), "STRIP_FROM_PATH": f'"{root}"',
        "OUTPUT_DIRECTORY": f'"{folder}"',
        "INCLUDE_PATH": " ".join(f'"{top}"' for top in (root / "include", root / "bindings/c/include")),
    }  # fmt: skip
    (folder / "Doxyfile").write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    done = subprocess.run(["doxygen", "Doxyfile"], cwd=folder, check=False)
    if done.returncode != 0:
        index.unlink(missing_ok=True)
        raise RuntimeError("Doxygen: " + (folder / "warnings.txt").read_text(encoding="utf-8"))
    return index.parent


def option_meanings(root: pathlib.Path, compiler: str) -> dict[str, list[tuple[str, str, str, str]]]:
    """Of each struct of options its members as (kind, name, default, meaning), as abi/option_tables.h has them."""
    tables = root / "include/attikos/abi/option_tables.h"
    names = re.findall(r"^#define ATTIKOS_(\w+_(?:OPTIONS|GRADIENTS))\(X\)", tables.read_text(encoding="utf-8"), re.M)
    row = "#define ROW(kind, name, initial, meaning) ROW_BEGIN #kind #name #initial meaning ROW_END"
    program = f'#include "{tables}"\n{row}\n'
    program += "".join(f"TABLE_BEGIN {name.lower()} ATTIKOS_{name}(ROW) TABLE_END\n" for name in names)
    command = [compiler, "-E", "-P", "-x", "c", "-"]
    done = subprocess.run(command, input=program, capture_output=True, text=True, check=True)
    text = done.stdout.replace("\n", " ")
    result = {}
    for name, rows in re.findall(r"TABLE_BEGIN (\w+) (.*?) TABLE_END", text):
        found = []
        for row in re.findall(r"ROW_BEGIN (.*?) ROW_END", rows):
            kind, member, initial, *meaning = re.findall(r'"((?:[^"\\]|\\.)*)"', row)
            found.append((kind, member, initial, "".join(meaning).replace('\\"', '"')))
        result[name] = found
    return result


@dataclasses.dataclass
class Entity:
    kind: str  # of the directive: function, struct, enum, enumerator, member, var, type, concept, macro
    name: str  # with namespaces, without the version's
    signature: str
    header: str
    line: int
    text: list[str]
    members: list[Entity] = dataclasses.field(default_factory=list)


def escape(text: str) -> str:
    return re.sub(r"([\\*`|_<>])", r"\\\1", text)


def strip(name: str) -> str:
    return re.sub(rf"\b{VERSION}::", "", name)


def flat(element: ElementTree.Element | None) -> str:
    """The text of a declaration."""
    text = "" if element is None else "".join(element.itertext())
    return re.sub(r"\s+", " ", strip(text)).strip()


class Describer:
    """Doxygen's descriptions as reStructuredText."""

    def __init__(self, targets: dict[str, str]):
        self.targets = targets  # public names by Doxygen's ids

    def inline(self, element: ElementTree.Element) -> str:
        parts = [escape(element.text or "")]
        for child in element:
            parts += [self.piece(child), escape(child.tail or "")]
        return "".join(parts)

    def piece(self, child: ElementTree.Element) -> str:
        plain = "".join(child.itertext())
        if child.tag == "computeroutput" and plain.strip():
            return f"``{plain.strip()}``" if "`" not in plain else escape(plain)
        # A sentence that begins with "Error" speaks of rounding, not of the class.
        if child.tag == "ref" and child.get("refid") in self.targets and plain != "Error":
            glued = "\\ " if re.match(r"[\w(\[/]", child.tail or "") else ""  # a role ends at a space or a mark
            return f":cpp:any:`{plain} <{self.targets[child.get('refid', '')]}>`{glued}"
        if child.tag in ("emphasis", "bold"):
            return f"*{escape(plain.strip())}*"
        if child.tag == "ulink":
            return f"`{plain} <{child.get('url')}>`__"
        if child.tag in ("sp", "linebreak"):
            return " "
        return self.inline(child) if len(child) else escape(plain)

    def blocks(self, element: ElementTree.Element | None) -> list[str]:
        """Lines of what stands in a description, an item or a paragraph."""
        if element is None:
            return []
        lines: list[str] = []
        sentence = [escape(element.text or "")] if element.tag == "para" else []

        def flush() -> None:
            text = re.sub(r"[ \t\n]+", " ", "".join(sentence)).strip()
            sentence.clear()
            if text and text != "\\":
                lines.extend(["", text])

        for child in element:
            if child.tag in ("para", "parblock", "detaileddescription", "briefdescription"):
                flush()
                lines += self.blocks(child)
            elif child.tag in ("itemizedlist", "orderedlist"):
                flush()
                lines.append("")
                for item in child.findall("listitem"):
                    inner = self.blocks(item)
                    lines += ["- " + (inner[1] if len(inner) > 1 else "")] + ["  " + line for line in inner[2:]]
            elif child.tag == "parameterlist":
                flush()
                lines.append("")
                field = {"param": "param", "templateparam": "tparam", "exception": "throws", "retval": "retval"}[
                    child.get("kind", "")]  # fmt: skip
                for item in child.findall("parameteritem"):
                    names = ", ".join(flat(name) for name in item.iter("parametername"))
                    inner = self.blocks(item.find("parameterdescription"))
                    lines.append(f":{field} {names}: " + (inner[1] if len(inner) > 1 else ""))
                    lines += ["    " + line for line in inner[2:]]
            elif child.tag == "simplesect":
                flush()
                inner = self.blocks(child)
                if child.get("kind") == "return":
                    lines += ["", ":returns: " + " ".join(line for line in inner if line)]
                else:
                    lines += inner
            elif child.tag in ("verbatim", "programlisting", "preformatted"):
                flush()
                rows = ["".join(line.itertext()) for line in child.iter("codeline")]
                code = "\n".join(rows) or "".join(child.itertext())
                lines += ["", "::", ""] + ["    " + line for line in code.strip("\n").splitlines()] + [""]
            else:
                sentence += [self.piece(child)]
            if element.tag == "para" and child.tail:
                sentence.append(escape(child.tail))
        flush()
        return lines

    def of(self, element: ElementTree.Element) -> list[str]:
        return self.blocks(element.find("briefdescription")) + self.blocks(element.find("detaileddescription"))


def template(element: ElementTree.Element) -> str:
    parameters = element.find("templateparamlist")
    if parameters is None:
        return ""
    parts = []
    for parameter in parameters.findall("param"):
        kind, name, default = (flat(parameter.find(x)) for x in ("type", "declname", "defval"))
        parts.append(f"{kind} {name}".strip() + (f" = {default}" if default else ""))
    clause = flat(element.find("requiresclause"))
    return f"template<{', '.join(parts)}> " + (f"requires {clause} " if clause else "")


def hidden(name: str) -> bool:
    parts = name.split("::")
    return "detail" in parts or "abi" in parts or parts[0] == "std" or "<" in name or "@" in name


def public_detail(text: str) -> str:
    """Signatures name concepts of `detail` by their own names."""
    return re.sub(r"\b(?:attikos::)?detail::(?=[A-Z])", "", text)


class Headers:
    """What Doxygen found, by header."""

    def __init__(self, xml: pathlib.Path, meanings: dict[str, list[tuple[str, str, str, str]]]):
        self.meanings = meanings
        trees = [ElementTree.parse(file).getroot() for file in sorted(xml.glob("*.xml")) if file.name != "index.xml"]
        compounds = [c for tree in trees for c in tree.findall("compounddef")]
        targets = {}
        for compound in compounds:
            name = compound.findtext("compoundname") or ""
            if compound.get("kind") in ("struct", "class", "concept") and self.versioned(compound):
                targets[compound.get("id", "")] = strip(name)
            for member in compound.iter("memberdef"):
                full = member.findtext("qualifiedname") or ""
                if member.get("kind") in ("function", "enum") and VERSION in full.split("::"):
                    targets[member.get("id", "")] = strip(full)
        self.describer = Describer({key: name for key, name in targets.items() if not hidden(name)})
        self.entities: dict[str, list[Entity]] = {}
        seen = set()
        for compound in compounds:
            kind, name = compound.get("kind"), compound.findtext("compoundname") or ""
            of_c = "::" not in name and kind != "namespace"
            if kind in ("struct", "class", "concept"):
                if (of_c or self.versioned(compound)) and not hidden(name) and not self.nested(name, compounds):
                    self.add(self.compound(compound, of_c))
            elif kind == "namespace" and not hidden(name):
                # Names that are no version's are those of the C library's headers for C++.
                versioned = VERSION in name.split("::")
                for member in compound.iter("memberdef"):
                    if versioned or VERSION not in (member.findtext("qualifiedname") or "").split("::"):
                        self.add(self.member(member, False))
            elif kind == "file" and (compound.findtext("compoundname") or "").endswith(".h"):
                for member in compound.iter("memberdef"):
                    if member.get("id") not in seen:
                        self.add(self.member(member, True))
        for entities in self.entities.values():
            entities.sort(key=lambda entity: entity.line)

    @staticmethod
    def versioned(compound: ElementTree.Element) -> bool:
        """Doxygen lists most structs of an inline namespace twice, and not always by the longer name."""
        return f"_1_1{VERSION}_1_1" in compound.get("id", "")

    @staticmethod
    def nested(name: str, compounds: list[ElementTree.Element]) -> bool:
        owner = name.rpartition("::")[0]
        return any(c.findtext("compoundname") == owner and c.get("kind") in ("struct", "class") for c in compounds)

    def add(self, entity: Entity | None) -> None:
        if entity is None:
            return
        there = self.entities.setdefault(entity.header, [])
        if all((e.kind, e.name, e.signature) != (entity.kind, entity.name, entity.signature) for e in there):
            there.append(entity)

    def place(self, element: ElementTree.Element) -> tuple[str, int]:
        location = element.find("location")
        assert location is not None
        file = location.get("file", "")
        return file.removeprefix("include/").removeprefix("bindings/c/include/"), int(location.get("line", "0"))

    def compound(self, compound: ElementTree.Element, of_c: bool) -> Entity:
        name = strip(compound.findtext("compoundname") or "")
        header, line = self.place(compound)
        text = self.describer.of(compound)
        if compound.get("kind") == "concept":
            return Entity("concept", name, template(compound) + name, header, line, text)
        parents = [strip(flat(base)) for base in compound.findall("basecompoundref") if base.get("prot") == "public"]
        signature = template(compound) + name + (f" : public {', '.join(parents)}" if parents else "")
        entity = Entity("struct", name, signature, header, line, text)
        for member in compound.iter("memberdef"):
            if member.get("prot") == "public":
                made = self.member(member, of_c, name)
                if made is not None and not made.name.rpartition("::")[2].startswith(("~", "operator")):
                    entity.members.append(made)
        self.complete_options(entity, of_c)
        return entity

    def complete_options(self, entity: Entity, of_c: bool) -> None:
        """Says of members that come from the tables of options what these say."""
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", entity.name.split("::")[-1]).lower().removeprefix("attikos_")
        rows = {row[1]: row for row in self.meanings.get(snake, [])}
        for member in entity.members:
            row = rows.get(member.name.split("::")[-1].split(".")[-1])
            if row is not None and (of_c or not member.text):
                initial = row[2].replace("ATTIKOS_", "") if not of_c else row[2]
                default = f" Default: ``{initial}``." if of_c and initial not in ("NULL",) else ""
                member.text = ["", escape(row[3][:1].upper() + row[3][1:]) + "." + default]

    def member(self, member: ElementTree.Element, of_c: bool, owner: str = "") -> Entity | None:
        kind, name = member.get("kind", ""), member.findtext("name") or ""
        full = name if of_c else strip(member.findtext("qualifiedname") or name)
        header, line = self.place(member)
        if hidden(full) or name.startswith("@") or not name or member.get("prot") == "private":
            return None
        text = self.describer.of(member)
        type_, arguments = flat(member.find("type")), re.sub(r"\s+", " ", strip(member.findtext("argsstring") or ""))
        prefix = public_detail(template(member))
        if kind == "function":
            if name.startswith("operator") or "=delete" in arguments or "=default" in arguments:
                return None
            if not type_ and not owner:
                return None  # a deduction guide
            type_ = re.sub(r"\b(inline|friend) ", "", type_)
            shown = name if owner and of_c else full
            arguments = re.sub(r"\[\[\w+\]\]", "", arguments)
            arguments = re.sub(r"=\{\.[^}]*\}", "={}", arguments)  # Sphinx knows no designated initializers
            signature = public_detail(f"{prefix}{type_} {shown}{arguments}").strip()
            return Entity("function", full, signature, header, line, text)
        if kind == "enum":
            scoped = "enum" if of_c or member.get("strong") != "yes" else "enum-class"
            entity = Entity(scoped, full, full, header, line, text)
            for value in member.findall("enumvalue"):
                item = value.findtext("name") or ""
                signature = f"{item} {flat(value.find('initializer'))}".strip()
                told = self.describer.of(value)
                whole = item if of_c else f"{full}::{item}"
                entity.members.append(Entity("enumerator", whole, signature, header, line, told))
            return entity
        if kind == "variable":
            initial = flat(member.find("initializer"))
            type_ = re.sub(r"\binline ", "", type_)
            shown = name if owner else full
            signature = public_detail(f"{prefix}{type_} {shown}{arguments}") + (
                f" {initial}" if initial and len(initial) < 60 and "(" not in initial and not of_c else "")  # fmt: skip
            made = Entity("member" if owner else "var", full, signature, header, line, text)
            return dataclasses.replace(made, name=f"{owner}.{name}") if of_c and owner else made
        if kind == "typedef":
            if of_c:  # structs and enumerations have entries of their own, but for one that is only declared
                definition = flat(member.find("definition")).removeprefix("typedef ")
                if "(*" not in definition and name != "attikos_context":
                    return None
                return Entity("type", name, name if name == "attikos_context" else definition, header, line, text)
            return Entity("type", full, f"{prefix}{full}", header, line, text)
        if kind == "define" and of_c and name.endswith("_INIT"):
            return Entity("macro", name, name, header, line, text or ["", "The initializer of these options."])
        return None


def directive(entity: Entity, domain: str, indent: str = "") -> list[str]:
    kind = entity.kind
    if domain == "c":
        kind = {"enum-class": "enum"}.get(kind, kind)
    lines = [f"{indent}.. {domain}:{kind}:: {entity.signature}"]
    inner = indent + "   "
    lines += [""] + [inner + line if line else "" for line in entity.text] + [""]
    for member in entity.members:
        lines += directive(member, domain, inner)
    return lines
