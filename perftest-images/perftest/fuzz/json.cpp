// Texts of any bytes in the output: JSON, and lines on standard error.
#include "../../fuzz/fuzz.h"
#include "json.h"
#include "state.h"

namespace {

bool is_utf8(const std::string& text) {
    try {
        static_cast<void>(k8sdds::Json(text).dump());      // throws for anything else
        return true;
    } catch (const k8sdds::Json::exception&) {
        return false;
    }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace k8sdds;
    const std::string text(reinterpret_cast<const char*>(data), size);
    for (const bool ascii_only : {false, true}) {
        const std::string document = json_text(Json{{text, text}}, -1, ascii_only);
        const Json parsed = Json::parse(document, nullptr, false);
        fuzz::require(!parsed.is_discarded(), "the output is JSON");
        fuzz::require(!is_utf8(text) || parsed.value(text, "") == text, "UTF-8 stays UTF-8");
    }
    const std::string line = one_line(text, 50);
    fuzz::require(line.size() <= 50 && (!is_utf8(text) || is_utf8(line)), "a line is cut at a character");
    for (const char c : line) fuzz::require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "a line has no control characters");
    return 0;
}
