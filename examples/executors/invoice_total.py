"""Adds an invoice up exactly: decimal arithmetic, one rounding, a tax per line.

Payload: `lines`, each `{quantity, unit_price, tax_percent}` with numbers written as text, and
`currency`. Amounts are texts, because binary fractions cannot hold money. Without lines there is no
output.
"""

from decimal import ROUND_HALF_UP, Decimal

CENT = Decimal("0.01")


def _amount(line):
    net = Decimal(line["quantity"]) * Decimal(line["unit_price"])
    tax = net * Decimal(line.get("tax_percent", "0")) / 100
    return net, tax


def _text(amount):
    return str(amount.quantize(CENT, ROUND_HALF_UP))


class InvoiceTotal:
    executor_id = "invoice_total"
    version = "1.0.0"
    capabilities = ["INVOICING"]
    limits = {
        "timeout_ms": 500,
        "max_payload_bytes": 50_000,
        "max_depth": 4,
        "max_list_items": 500,
    }
    samples = [
        {
            "payload": {
                "currency": "EUR",
                "lines": [
                    {"quantity": "3", "unit_price": "0.10", "tax_percent": "19"},
                    {"quantity": "1", "unit_price": "10.005"},
                ],
            },
            "output": {"currency": "EUR", "net": "10.31", "tax": "0.06", "gross": "10.36"},
        },
        {"payload": {"currency": "EUR", "lines": []}, "output": None},
    ]

    def execute(self, req):
        amounts = [_amount(line) for line in req.payload["lines"]]
        if not amounts:
            return None
        net = sum(net for net, _tax in amounts)
        tax = sum(tax for _net, tax in amounts)
        return {
            "currency": req.payload["currency"],
            "net": _text(net),
            "tax": _text(tax),
            "gross": _text(net + tax),
        }
