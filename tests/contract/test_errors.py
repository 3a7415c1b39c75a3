"""Errors of every route: one shape, every header."""

import pytest

from chainrule.web.guard import SECURITY_HEADERS

POST = {"method": "POST", "url": "/api/v1/trace", "headers": {"content-type": "application/json"}}

FAULTS = [
    # request, status, code, field
    ({"url": "/nowhere"}, 404, "not_found", None),
    ({"url": "/static/nowhere.js"}, 404, "not_found", None),
    ({"url": "/api/v1/trace.xml"}, 404, "not_found", None),
    ({"method": "POST", "url": "/api/v1/trace.json"}, 405, "method_not_allowed", None),
    ({"method": "DELETE", "url": "/healthz"}, 405, "method_not_allowed", None),
    ({"method": "PUT", "url": "/static/docs.js"}, 405, "method_not_allowed", None),
    ({"url": "/api/v1/presets.json", "headers": {"host": "elsewhere.example"}}, 400, "host_not_allowed", None),
    ({**POST, "headers": {"origin": "null"}}, 403, "origin_not_allowed", None),
    ({"url": "/api/v1/trace.dot?seed=1&seed=1"}, 422, "invalid_spec", "seed"),
    ({"url": "/api/v1/profile.json?batch=1025"}, 422, "over_limit", "batch"),
    ({"url": "/api/v1/theory.json?weight_variance=9e9999"}, 422, "invalid_parameter", "weight_variance"),
    ({"url": "/api/v1/tensor.json"}, 422, "bad_request", "name"),
    ({"url": "/api/v1/tensor.json?name=l2&cols=0:65"}, 422, "invalid_range", "cols"),
    ({"url": "/api/v1/trace.json?unknown=1"}, 422, "invalid_spec", "unknown"),
    ({"url": "/api/v1/trace.json?batch=many"}, 422, "invalid_spec", "batch"),
    ({"url": "/api/v1/trace.json?widths=1000000000,1"}, 422, "over_limit", "widths"),
    ({"url": "/api/v1/trace.json?widths=100x999999999"}, 422, "invalid_spec", "widths"),
    ({"url": "/api/v1/trace.json?scale=nan"}, 422, "invalid_spec", "scale"),
    ({"url": "/api/v1/theory.json?activation=maxout"}, 422, "invalid_parameter", "activation"),
    ({"url": "/api/v1/theory.json?seed=1"}, 422, "invalid_parameter", "seed"),
    ({"url": "/api/v1/trace.svg?level=most"}, 422, "invalid_parameter", "level"),
    ({"url": "/api/v1/trace.svg?toggled=nope/forward&seed=1"}, 422, "invalid_parameter", "toggled"),
    ({"url": "/api/v1/trace.svg?view=x"}, 422, "invalid_spec", "view"),
    ({"url": "/api/v1/trace.json?level=all"}, 422, "invalid_spec", "level"),
    ({"url": "/api/v1/node-data.json?statistic=median"}, 422, "invalid_parameter", "statistic"),
    ({"url": "/api/v1/dump.json"}, 404, "not_found", None),
    ({"url": "/api/v1/tensor.json?name=none"}, 404, "not_found", "name"),
    ({**POST, "content": b"{"}, 400, "malformed_json", None),
    ({**POST, "content": b"[1]"}, 422, "invalid_body", None),
    ({**POST, "content": b'{"scale": []}'}, 422, "invalid_spec", "scale"),
    ({**POST, "content": b" " * 10**6}, 413, "body_too_large", None),
    ({**POST, "content": b"{}", "headers": {"content-type": "text/html"}}, 415, "unsupported_media_type", None),
]


def ask(http, request):
    return http.request(**{"method": "GET", **request})


@pytest.mark.parametrize(("request_", "status", "code", "field"), FAULTS, ids=[str(fault[0])[:90] for fault in FAULTS])
def test_every_error_has_the_one_shape_and_every_header(http, request_, status, code, field):
    answer = ask(http, request_)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    for name, value in SECURITY_HEADERS.items():
        assert answer.headers[name] == value
    body = answer.json()
    assert body.keys() == {"error"}
    assert {"code", "message"} <= body["error"].keys() <= {"code", "message", "field", "limit"}
    assert (body["error"]["code"], body["error"].get("field")) == (code, field)
    assert len(body["error"]["message"]) > 10
    if status == 405:
        assert answer.headers["allow"] == body["error"]["limit"]


def test_a_missing_device_is_named(http):
    if "cuda" in [device["name"] for device in http.get("/api/v1/devices.json").json()["devices"]]:
        pytest.skip("this machine has the device")
    error = http.get("/api/v1/trace.json?device=cuda").json()["error"]
    assert (error["field"], error["limit"]) == ("device", ["cpu"])
