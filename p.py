import sys,glob,os
from spark_apps import open_table
for d in sorted({os.path.dirname(x) for x in glob.glob('/tmp/r1/**/_index',recursive=True)}):
    try:
        t=open_table(d)
        print(d,[ (f.name,f.type) for f in t.definition.fields], t.definition.record_key, {n:(e.definition.kind,e.definition.columns) for n,e in t._snapshot.state.indexes.items()}, len(t._snapshot.groups()))
    except Exception as e: print(d,repr(e)[:200])
