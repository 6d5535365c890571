"""Defines `traceview devices`: every device, how busy it was, with what, and how it compares."""

from __future__ import annotations

from traceview.cli.table import Answer, Request, table_command


@table_command()
def devices(request: Request) -> Answer:
    """List every device with the parts of its time.

    Each is compared with the others. A terminal shows the columns that fit and, of very many devices, the outliers;
    the other formats have all. The DataFrame traceview.load(LOGDIR).active_devices says which devices ran work in
    which step.

    Example: traceview devices logs/ -o devices.csv
    """
    from traceview.analysis import balance, device_time, placement
    from traceview.analysis.device_time.table import device_table, device_table_section

    context = request.context
    result = context.record(balance.ANALYSIS)
    late = (result.straggler.device,) if result and result.straggler else ()
    rows = device_table(context.record(device_time.ANALYSIS), result)
    chosen = rows.where("device", request.devices)
    return Answer(
        rows=chosen,
        sections=lambda: [
            device_table_section(chosen, request.others(*late), context.record(placement.ANALYSIS))
        ],
        left_out_count=rows.count - chosen.count,
    )
