// Results as JSON, for the JSON output.
#pragma once

#include <optional>
#include <vector>

#include "json.h"
#include "participant.h"

namespace k8sdds {

Json latency_json(const Histogram&);                       // null without values
Json age_json(const std::optional<Freshness>&);
Json flows_json(const std::vector<FlowResult>&);           // null if there are none

}  // namespace k8sdds
