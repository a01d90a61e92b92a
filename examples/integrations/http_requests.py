"""A model asked twice over plain HTTP: kill it anywhere, start it again, and it goes on."""

import os

import httpx

import holdfast
from holdfast.integrations.http import DurableTransport

client = httpx.Client(
    transport=DurableTransport(),
    base_url=os.environ["OPENAI_BASE_URL"],
    headers={"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"},
)
messages = [{"role": "user", "content": "Name a harbour."}]

with holdfast.run("harbours"):
    for _ in range(2):
        question = {"model": "gpt-5-mini", "messages": messages}
        reply = client.post("/chat/completions", json=question).raise_for_status().json()
        messages += [reply["choices"][0]["message"], {"role": "user", "content": "Another one."}]
for message in messages[1::2]:
    print(message["content"])
