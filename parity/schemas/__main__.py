"""Write the schemas."""

from parity.schemas import FOLDER, generate

for name, text in generate().items():
    (FOLDER / name).write_text(text, encoding="utf-8")
