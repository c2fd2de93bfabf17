"""Judgements from the behaviour of users: logs of queries and clicks, and the click model that corrects them for positions."""
