"""Every operator and sensor with every argument from another task: handed on as it is, and mapped. Instead of working,
each returns its arguments."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, task

from spark_apps.storage.errors import InvalidInput
from tests.airflow_provider_index.every_argument.surface import operators, required
from tests.airflow_provider_index.every_argument.test_xcoms import given


def telling(kind: type) -> Any:
    """The class, but that it returns its arguments once it has read them."""

    def execute(self: Any, context: Any) -> dict[str, Any]:
        try:
            self.read_arguments()
        except InvalidInput as error:
            return {"refused": str(error)}
        return {name: getattr(self, name) for name in given(kind)[0]}

    return type(kind)(f"Telling{kind.__name__}", (kind,), {"execute": execute})


@task(multiple_outputs=True)
def values() -> dict[str, Any]:
    return {f"{kind.__name__}-{name}": one for kind in operators() for name, one in given(kind)[0].items()}


@task
def rounds() -> list[dict[str, Any]]:
    return [{kind.__name__: given(kind)[1] for kind in operators()}]


with DAG("xcoms", schedule=None) as dag:
    given_values, mapped_over = values(), rounds()
    for kind in operators():
        name, names = kind.__name__, list(given(kind)[0])
        rest = {one: value for one, value in required(kind).items() if one not in names}
        telling(kind)(task_id=name, **rest, **{one: given_values[f"{name}-{one}"] for one in names})
        mapped = telling(kind).partial(task_id=f"mapped_{name}", **rest)
        mapped.expand_kwargs(mapped_over.map(lambda one, name=name: one[name]))
