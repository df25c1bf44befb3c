"""The searchable store of reports and documents. The only room that knows `apsw`."""
