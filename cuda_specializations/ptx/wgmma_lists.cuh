// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Lists of an accumulator's registers in the text and among the operands of wgmma instructions.
#pragma once

// Register lists by eights, %0 to %127; then the operands that follow N / 2 of them.
#define ATTIKOS_L1 "%0,%1,%2,%3,%4,%5,%6,%7"
#define ATTIKOS_L2 ATTIKOS_L1 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define ATTIKOS_L3 ATTIKOS_L2 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define ATTIKOS_L4 ATTIKOS_L3 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define ATTIKOS_L5 ATTIKOS_L4 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define ATTIKOS_L6 ATTIKOS_L4 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define ATTIKOS_L7 ATTIKOS_L6 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define ATTIKOS_L8 ATTIKOS_L7 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define ATTIKOS_L9 ATTIKOS_L8 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define ATTIKOS_L10 ATTIKOS_L9 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define ATTIKOS_L11 ATTIKOS_L10 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define ATTIKOS_L12                                                                  \
  ATTIKOS_L8                                                                         \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83" \
  ",%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define ATTIKOS_L13 ATTIKOS_L12 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define ATTIKOS_L14 \
  ATTIKOS_L12       \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define ATTIKOS_L15 ATTIKOS_L14 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define ATTIKOS_L16 \
  ATTIKOS_L14       \
  ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define ATTIKOS_R8(c, i) \
  c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3]), c(d[i + 4]), c(d[i + 5]), c(d[i + 6]), c(d[i + 7])
#define ATTIKOS_R16(c, i) ATTIKOS_R8(c, i), ATTIKOS_R8(c, i + 8)
#define ATTIKOS_R24(c, i) ATTIKOS_R16(c, i), ATTIKOS_R8(c, i + 16)
#define ATTIKOS_R32(c, i) ATTIKOS_R16(c, i), ATTIKOS_R16(c, i + 16)
#define ATTIKOS_R40(c, i) ATTIKOS_R32(c, i), ATTIKOS_R8(c, i + 32)
#define ATTIKOS_R48(c, i) ATTIKOS_R32(c, i), ATTIKOS_R16(c, i + 32)
#define ATTIKOS_R56(c, i) ATTIKOS_R48(c, i), ATTIKOS_R8(c, i + 48)
#define ATTIKOS_R64(c, i) ATTIKOS_R32(c, i), ATTIKOS_R32(c, i + 32)
#define ATTIKOS_R72(c, i) ATTIKOS_R64(c, i), ATTIKOS_R8(c, i + 64)
#define ATTIKOS_R80(c, i) ATTIKOS_R64(c, i), ATTIKOS_R16(c, i + 64)
#define ATTIKOS_R88(c, i) ATTIKOS_R64(c, i), ATTIKOS_R24(c, i + 64)
#define ATTIKOS_R96(c, i) ATTIKOS_R64(c, i), ATTIKOS_R32(c, i + 64)
#define ATTIKOS_R104(c, i) ATTIKOS_R96(c, i), ATTIKOS_R8(c, i + 96)
#define ATTIKOS_R112(c, i) ATTIKOS_R96(c, i), ATTIKOS_R16(c, i + 96)
#define ATTIKOS_R120(c, i) ATTIKOS_R64(c, i), ATTIKOS_R56(c, i + 64)
#define ATTIKOS_R128(c, i) ATTIKOS_R64(c, i), ATTIKOS_R64(c, i + 64)
#define ATTIKOS_F(x) "+f"(x)
#define ATTIKOS_I(x) "+r"(x)
