"""What makes Outrider an agent: models, tools, subagents, turns, reports. The only room that knows `pydantic_ai`."""
