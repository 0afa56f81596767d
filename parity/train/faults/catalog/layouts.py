"""Small layouts under which faults are tried."""

from parity.layout import Layout

__all__ = ["ANY", "CP", "CP_EP", "DP", "DP_EP", "FSDP", "FSDP_EP", "PP", "TP"]

DP, FSDP, TP, PP, CP = Layout(dp=2), Layout(fsdp=2), Layout(tp=2), Layout(pp=2), Layout(cp=2)
DP_EP, FSDP_EP, CP_EP = Layout(dp=2, ep=2), Layout(fsdp=2, ep=2), Layout(cp=2, ep=2)

ANY = (DP, FSDP, TP, PP, DP_EP, CP)
