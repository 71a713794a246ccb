"""Any endpoint with OpenAI's API of chat completions: OpenAI, DeepSeek, Qwen, vLLM, llama.cpp, Ollama, …"""

from __future__ import annotations

from jaxmarl_llm.experts.attempts import Garbage
from jaxmarl_llm.experts.remote import Remote, make_reply
from jaxmarl_llm.experts.types import Reply, Request


class OpenAI(Remote):
    """The `Source` of kind "openai"."""

    kind = "openai"
    client_class = "AsyncOpenAI"
    usual_url = "https://api.openai.com/v1"
    usual_key_variable = "OPENAI_API_KEY"

    def refusal(self, request: Request) -> str | None:
        """Refuse nothing: endpoints differ too much to know in advance what they accept."""
        return None

    async def complete(self, client, request: Request) -> Reply:
        """See `Remote.complete`."""
        # OpenAI's newer models refuse the older name of the limit; many other endpoints know only that name.
        is_openai = self.identity["base_url"] == self.usual_url
        options = {"max_completion_tokens" if is_openai else "max_tokens": request.max_tokens}
        if request.temperature is not None:
            options["temperature"] = request.temperature
        answer = await client.chat.completions.create(
            model=self.identity["model"], messages=list(request.messages), **options
        )
        choices = getattr(answer, "choices", None)
        if not isinstance(choices, list) or not choices:
            raise Garbage(f"an answer without choices: {answer}")
        text = getattr(getattr(choices[0], "message", None), "content", None)
        usage = getattr(answer, "usage", None)
        counts = getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None)
        return make_reply(
            request, text, getattr(choices[0], "finish_reason", None), cut="length", usage=counts
        )

    async def models(self, client) -> list[str]:
        """See `Remote.models`."""
        listed = getattr(await client.models.list(), "data", None)
        if not isinstance(listed, list):
            raise Garbage("no list of models where one should be; does base_url end as it should (/v1)?")
        return [str(getattr(model, "id", None)) for model in listed]
