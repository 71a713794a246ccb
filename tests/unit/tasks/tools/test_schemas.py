"""Parameters from JSON schemas."""

from jaxmarl_llm.tasks.tools import schemas


def test_types_and_what_agents_read():
    schema = {
        "properties": {
            "n": {"type": "integer", "description": "How many.\n\nMore."},
            "x": {"type": "number"},
            "unit": {"enum": ["cm", "m"]},
            "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "at": {"$ref": "#/$defs/Point"},
            "rows": {"type": "array", "items": {"type": "boolean"}},
            "any": True,
        },
        "required": ["n", "x"],
        "$defs": {
            "Point": {"type": "object", "properties": {"x": {"type": "number"}, "in": {"$ref": "#/$defs/Point"}}},
        },
    }
    read = schemas.parameters(schema)
    assert read.types == {
        "n": int, "x": float, "unit": object, "maybe": object, "at": dict, "rows": list, "any": object,
    }  # fmt: skip
    assert read.optional == ("unit", "maybe", "at", "rows", "any")
    assert read.details == {
        "n": "whole number (How many)", "x": "number", "unit": '"cm" or "m"', "maybe": "text or nothing",
        "at": "{x: number, in: {x: number, in: {x: value, in: value}}}", "rows": "[true or false, ..]", "any": "value",
    }  # fmt: skip
    assert schemas.parameters({}) == schemas.parameters({"properties": []}) == ({}, (), {})
