"""Graphs of tfl ops with state, as text; `H` is the handle of the variable "n"."""

H = '%v = tfl.VAR_HANDLE@1() {container = "", shared_name = "n"} : resource<variable>'
ADD = 'tfl.ADD@1({}, {}) {{fused_activation_function = "NONE"}} : tensor<2xfloat32>'
INIT = f"""tfl.CALL_ONCE@1() {{init_subgraph_index = graph init() -> () {{
  {H}
  %i = constant tensor<2xfloat32> [3.0, 4.0]
  tfl.ASSIGN_VARIABLE@1(%v, %i)
 }}}}"""

COUNTER = f"""graph main(%x: tensor<2xfloat32>) -> (%y) {{
 {INIT}
 {H}
 %a = tfl.READ_VARIABLE@1(%v) : tensor<2xfloat32>
 %y = {ADD.format("%a", "%x")}
 tfl.ASSIGN_VARIABLE@1(%v, %y)
}}"""
UNKNOWN_RANK = COUNTER.replace(
    "tfl.READ_VARIABLE@1(%v) : tensor<2xfloat32>", "tfl.READ_VARIABLE@1(%v) : tensor<*xfloat32>"
)
ASSIGNED_FIRST = f"""graph main(%x: tensor<2xfloat32>) -> (%y) {{
 {H}
 tfl.ASSIGN_VARIABLE@1(%v, %x)
 %a = tfl.READ_VARIABLE@1(%v) : tensor<2xfloat32>
 %y = {ADD.format("%a", "%x")}
}}"""
IN_A_BRANCH = f"""graph main(%p: tensor<bool>, %x: tensor<2xfloat32>) -> (%y) {{
 {INIT}
 {H}
 %r = tfl.IF@1(%p, %v, %x) {{then_subgraph_index = graph t(%h: resource<variable>, %z: tensor<2xfloat32>) -> (%z) {{
  tfl.ASSIGN_VARIABLE@1(%h, %z)
 }}, else_subgraph_index = graph e(%h: resource<variable>, %z: tensor<2xfloat32>) -> (%s) {{
  %s = {ADD.format("%z", "%z")}
 }}}} : tensor<2xfloat32>
 %a = tfl.READ_VARIABLE@1(%v) : tensor<2xfloat32>
 %y = {ADD.format("%a", "%r")}
}}"""
IN_A_LOOP = f"""graph main(%n: tensor<2xfloat32>) -> (%m, %a) {{
 {INIT}
 {H}
 %m, %w = tfl.WHILE@1(%n, %v) {{cond_subgraph_index = graph c(%i: tensor<2xfloat32>, %h: resource<variable>) -> (%l) {{
  %zero = constant tensor<1xint32> [0]
  %max = tfl.REDUCE_MAX@1(%i, %zero) {{keep_dims = false}} : tensor<float32>
  %k = constant tensor<float32> [9.0]
  %l = tfl.LESS@1(%max, %k) : tensor<bool>
 }}, body_subgraph_index = graph b(%i: tensor<2xfloat32>, %h: resource<variable>) -> (%j, %h) {{
  %o = constant tensor<2xfloat32> [1.0, 2.0]
  %j = {ADD.format("%i", "%o")}
  %q = tfl.READ_VARIABLE@1(%h) : tensor<2xfloat32>
  %t = {ADD.format("%q", "%i")}
  tfl.ASSIGN_VARIABLE@1(%h, %t)
 }}}} : tensor<2xfloat32>, resource<variable>
 %a = tfl.READ_VARIABLE@1(%w) : tensor<2xfloat32>
}}"""
COMPUTED_INITIAL = COUNTER.replace(
    "tfl.ASSIGN_VARIABLE@1(%v, %i)", f"%k = {ADD.format('%i', '%i')}\n  tfl.ASSIGN_VARIABLE@1(%v, %k)"
)
RNN = """graph main(%x: tensor<2x3xfloat32>) -> (%y) {
 state %h: tensor<2x4xfloat32> -> %h
 %w = constant tensor<4x3xfloat32> [0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.1, 0.2, 0.3]
 %r = constant tensor<4x4xfloat32> [0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
 %b = constant tensor<4xfloat32> [0.1, 0.2, 0.3, 0.4]
 %y = tfl.RNN@1(%x, %w, %r, %b, %h) {fused_activation_function = "TANH"} : tensor<2x4xfloat32>
}"""
TABLE = """graph main(%x: tensor<3xint64>) -> (%y) {
 %t = tfl.HASHTABLE@1() {table_id = 1, key_dtype = "INT64", value_dtype = "STRING"} : resource<variable>
 %k = constant tensor<2xint64> [5, 7]
 %s = constant tensor<2xstring> ["five", "seven"]
 tfl.HASHTABLE_IMPORT@1(%t, %k, %s)
 %d = constant tensor<1xstring> ["?"]
 %y = tfl.HASHTABLE_FIND@1(%t, %x, %d) : tensor<3xstring>
}"""
RNN_IN_A_BRANCH = """graph main(%p: tensor<bool>, %x: tensor<2x3xfloat32>) -> (%y) {
 %y = tfl.IF@1(%p, %x) {then_subgraph_index = graph t(%x: tensor<2x3xfloat32>) -> (%z) {
  BODY
 }, else_subgraph_index = graph e(%x: tensor<2x3xfloat32>) -> (%s) {
  %c = constant tensor<2x4xfloat32> [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
  %s = tfl.ABS@1(%c) : tensor<2x4xfloat32>
 }} : tensor<2x4xfloat32>
}""".replace("BODY", RNN.partition("{\n")[2].rpartition("\n")[0].replace("%y", "%z"))
RNN_IN_A_LOOP = """graph main(%n: tensor<1xint32>, %x: tensor<2x4xfloat32>) -> (%y) {
 %m, %y = tfl.WHILE@1(%n, %x) {cond_subgraph_index = graph c(%i: tensor<1xint32>, %x: tensor<2x4xfloat32>) -> (%l) {
  %k = constant tensor<1xint32> [9]
  %l = tfl.LESS@1(%i, %k) : tensor<1xbool>
 }, body_subgraph_index = graph b(%i: tensor<1xint32>, %x: tensor<2x4xfloat32>) -> (%j, %z) {
  BODY
  %o = constant tensor<1xint32> [1]
  %j = tfl.ADD@1(%i, %o) {fused_activation_function = "NONE"} : tensor<1xint32>
 }} : tensor<1xint32>, tensor<2x4xfloat32>
}""".replace(
    "BODY",
    RNN.partition("{\n")[2]
    .rpartition("\n")[0]
    .replace("%y", "%z")
    .replace("4x3", "4x4")
    .replace("[0.1, 0.2, 0.3, 0.1", "[0.3, -0.1, 0.2, 0.2, 0.1, 0.2, 0.3, 0.1", 1),
)


def int8_lstm(stored: str, state: str, cell: str = "0.000244140625") -> str:
    """An integer LSTM of 2 cells over 3 steps; quantization of what it stores as its output, of its state, and the
    scale of its cell.
    """
    weights = "constant tensor<2x{}xfloat32, quant<int8 0.01:0>> [{}]"
    gates = [
        f"%i{k} = {weights.format(3, ', '.join(str(17 * (k + 2) * (-1) ** j) for j in range(6)))}" for k in range(4)
    ]
    gates += [f"%r{k} = {weights.format(2, ', '.join(str(25 * (k - 2) + 9 * j) for j in range(4)))}" for k in range(4)]
    gates += [f"%b{k} = constant tensor<2xfloat32, quant<int32 0.0002:0>> [{1000 * k}, -500]" for k in range(4)]
    operands = ", ".join([*(f"%i{k}" for k in range(4)), *(f"%r{k}" for k in range(4)), "_, _, _"])
    biases = ", ".join(f"%b{k}" for k in range(4))
    intermediates = ", ".join([*["type tensor<0xfloat32>"] * 4, f"type tensor<0xfloat32, quant<int8 {stored}>>"])
    options = f'fused_activation_function = "TANH", intermediates = [{intermediates}]'
    return f"""graph main(%x: tensor<1x3x3xfloat32, quant<int8 0.02:-3>>) -> (%y) {{
 state %h: tensor<1x2xfloat32, quant<int8 {state}>> -> %h
 state %c: tensor<1x2xfloat32, quant<int16 {cell}:0>> -> %c
 {chr(10).join(gates)}
 %y = tfl.UNIDIRECTIONAL_SEQUENCE_LSTM@3(%x, {operands}, {biases}, _, _, %h, %c, _, _, _, _) {{{options}}} : \
tensor<1x3x2xfloat32, quant<int8 {stored}>>
}}"""
