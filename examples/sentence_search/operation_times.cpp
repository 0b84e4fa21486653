// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "operation_times.hpp"

#include <algorithm>
#include <iomanip>
#include <ostream>

namespace sentence_search {

void OperationTimes::add(std::string_view name, double seconds, double flops) {
  auto row = std::find_if(rows_.begin(), rows_.end(), [&](Row const& r) { return r.name == name; });
  if (row == rows_.end()) row = rows_.insert(rows_.end(), Row{.name = name});
  row->seconds += seconds;
  row->flops += flops;
  ++row->calls;
}

void OperationTimes::print(std::ostream& out, double total_seconds) const {
  auto const saved = out.flags();
  auto const share = [&](double seconds) {
    return total_seconds > 0 ? 100 * seconds / total_seconds : 0.0;
  };
  out << std::left << std::setw(16) << "operation" << std::right << std::setw(10) << "seconds"
      << std::setw(9) << "share" << std::setw(9) << "calls" << std::setw(10) << "GFLOP/s" << '\n'
      << std::fixed;
  double other = total_seconds;
  for (auto const& row : rows_) {
    out << std::left << std::setw(16) << row.name << std::right << std::setprecision(4)
        << std::setw(10) << row.seconds << std::setprecision(1) << std::setw(7)
        << share(row.seconds) << " %" << std::setw(9) << row.calls;
    if (row.flops > 0 && row.seconds > 0) {
      out << std::setw(10) << row.flops / row.seconds * 1e-9;
    }
    out << '\n';
    other -= row.seconds;
  }
  other = std::max(other, 0.0);
  out << std::left << std::setw(16) << "other" << std::right << std::setprecision(4)
      << std::setw(10) << other << std::setprecision(1) << std::setw(7) << share(other) << " %\n"
      << std::left << std::setw(16) << "total" << std::right << std::setprecision(4)
      << std::setw(10) << total_seconds << std::setw(9) << "100.0 %" << '\n';
  out.flags(saved);
}

}  // namespace sentence_search
