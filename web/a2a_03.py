"""The methods of A2A 0.3: for each its twin of 1.0, and how params, answers and the names of fields go over.

A table. It serves nothing: what is asked in the words of 0.3 is answered by the twin, and by nothing else.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from web import a2a_03_answers as to_0_3
from web import a2a_03_params as to_1_0
from web.a2a_03_params import Params

Json = dict[str, Any]


class Twin(NamedTuple):
    """The method of 1.0 that a method of 0.3 is. `field` is what a field of 1.0 is called in the params of 0.3.

    `reasons`: what 0.3 has another error for.
    """

    method: str
    params: Params
    answer: Callable[[Json], Any]
    field: Callable[[str], str] = to_1_0.named
    reasons: Mapping[str, str] = {}


TWINS = {
    "message/send": Twin("SendMessage", to_1_0.send, to_0_3.sent),
    "message/stream": Twin("SendStreamingMessage", to_1_0.send, to_0_3.event),
    "tasks/get": Twin("GetTask", to_1_0.picking("id", "historyLength"), to_0_3.task),
    # 0.3 has it on its other bindings only, and says of its answer no more than that it holds tasks.
    "tasks/list": Twin("ListTasks", to_1_0.list_tasks, to_0_3.page),
    "tasks/cancel": Twin("CancelTask", to_1_0.picking("id", "metadata"), to_0_3.task),
    "tasks/resubscribe": Twin("SubscribeToTask", to_1_0.picking("id"), to_0_3.event),
    "tasks/pushNotificationConfig/set": Twin(
        "CreateTaskPushNotificationConfig", to_1_0.set_config, to_0_3.config, to_1_0.named_in_set
    ),
    "tasks/pushNotificationConfig/get": Twin(
        "GetTaskPushNotificationConfig", to_1_0.get_config, to_0_3.config, to_1_0.named_of_config
    ),
    "tasks/pushNotificationConfig/list": Twin(
        "ListTaskPushNotificationConfigs", to_1_0.named_config, to_0_3.configs, to_1_0.named_of_config
    ),
    "tasks/pushNotificationConfig/delete": Twin(
        "DeleteTaskPushNotificationConfig", to_1_0.named_config, to_0_3.nothing, to_1_0.named_of_config
    ),
    "agent/getAuthenticatedExtendedCard": Twin(
        "GetExtendedAgentCard",
        to_1_0.nothing,
        to_0_3.card,
        # A missing one has an error of its own, be it offered or not (section 7.10, as the official types list it).
        reasons={"UNSUPPORTED_OPERATION": "EXTENDED_AGENT_CARD_NOT_CONFIGURED"},
    ),
}
