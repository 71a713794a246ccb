"""Anthropic's messages API."""

from __future__ import annotations

from jaxmarl_llm.experts.attempts import Garbage
from jaxmarl_llm.experts.remote import Remote, make_reply
from jaxmarl_llm.experts.types import Reply, Request


class Anthropic(Remote):
    """The `Source` of kind "anthropic"."""

    kind = "anthropic"
    client_class = "AsyncAnthropic"
    usual_url = "https://api.anthropic.com"
    usual_key_variable = "ANTHROPIC_API_KEY"

    def refusal(self, request: Request) -> str | None:
        """Refuse a temperature, which `anthropic` 2 does not accept, and chats of system messages only."""
        if request.temperature is not None:
            return f"temperature={request.temperature}: Anthropic's API takes none; allowed: None"
        if all(message["role"] == "system" for message in request.messages):
            return "messages hold system messages only; allowed: at least one other"
        return None

    async def complete(self, client, request: Request) -> Reply:
        """See `Remote.complete`. This API has a separate field for system messages."""
        system = [m["content"] for m in request.messages if m["role"] == "system"]
        answer = await client.messages.create(
            model=self.identity["model"],
            messages=[m for m in request.messages if m["role"] != "system"],
            max_tokens=request.max_tokens,
            **({"system": "\n\n".join(system)} if system else {}),
        )
        blocks = getattr(answer, "content", None)
        if not isinstance(blocks, list):
            raise Garbage(f"an answer without content: {answer}")
        texts = [getattr(block, "text", None) for block in blocks if getattr(block, "type", None) == "text"]
        usage = getattr(answer, "usage", None)
        counts = getattr(usage, "input_tokens", None), getattr(usage, "output_tokens", None)
        text = "".join(text for text in texts if isinstance(text, str))
        return make_reply(request, text, getattr(answer, "stop_reason", None), cut="max_tokens", usage=counts)

    async def models(self, client) -> list[str]:
        """See `Remote.models`."""
        listed = getattr(await client.models.list(limit=1000), "data", None)
        if not isinstance(listed, list):
            raise Garbage("no list of models where there should be one")
        return [str(getattr(model, "id", None)) for model in listed]
