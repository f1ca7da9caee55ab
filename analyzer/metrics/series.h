// Order statistics of a handful of numbers.
#pragma once

#include <vector>

namespace taut::metrics {

/// The value below which `fraction` (0…1) of the values lie, linear between neighbours (numpy's default); 0 for no
/// values.
double quantile(std::vector<double> values, double fraction);

inline double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}

double mean(const std::vector<double>& values);

}  // namespace taut::metrics
