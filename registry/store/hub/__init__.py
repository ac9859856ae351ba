"""A registry in a repository on the Hugging Face Hub: blobs and index file in one commit.

`HubRegistry` reads and writes, `HubUrl` is `hf://ORG/NAME[@BRANCH]`, `HubClient` speaks to the Hub through
huggingface_hub, `CommitHead` makes the next commit, or detects that another one came first.

Start with `hub.py`.
"""
