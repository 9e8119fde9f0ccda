// The name of JSON values, for headers: to compile json.h takes a second.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace k8sdds {

using Json = nlohmann::ordered_json;          // keys stay in the order in which they are inserted

}  // namespace k8sdds
