"""Many rows, in files: `bibs fill --input ... --output ...`. The files in the order in which a row meets them:

tables.py      Parquet and JSON lines: which files, cut into shards, read and written
output.py      the output directory: what is done, and files that are whole or absent
answers.py     rows to answers, a batch at a time; a bad row is an answer with an `error`
work.py        one shard, from its rows to its file; the same in every engine
local.py       engine: a process per core
on_ray.py      engine: an actor pool of Ray Data (extra `bibs[ray]`)
job.py         the whole job

Serving under Ray Serve is in serving.py. Nothing here is imported by `import bibs`.
"""
