#include "config_file.h"

#include <tinyxml2.h>

#include <algorithm>
#include <cctype>

#include "xml_text.h"

namespace k8sdds {
namespace {

using tinyxml2::XMLElement;

std::string lower(std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

bool same_name(const char* a, const std::string& b) { return lower(a) == lower(b); }

// Whether a path is the other one or below it.
bool is_within(const std::string& path, const std::string& top) {
    return path.compare(0, top.size(), top) == 0 && (path.size() == top.size() || path[top.size()] == '/');
}

enum class Match { refused, above, allowed };

// Returns what the rules are for an element. The first rule that matches it decides; otherwise it may be above an
// allowed element.
Match match(const std::string& path, const ConfigRules& rules) {
    Match result = Match::refused;
    for (const char* rule : rules.paths) {
        const bool refused = *rule == '-';
        const std::string top = lower(rule + (refused ? 1 : 0));
        if (is_within(path, top)) return refused ? Match::refused : Match::allowed;
        if (!refused && is_within(top, path)) result = Match::above;
    }
    return result;
}

}  // namespace

ConfigFile::ConfigFile() : document_(std::make_unique<tinyxml2::XMLDocument>()) {}
ConfigFile::~ConfigFile() = default;

std::string ConfigFile::problem(const XMLElement* e, const std::string& why) const {
    return "-middlewareConfig: " + path_ + ":" + std::to_string(e->GetLineNum()) + ": <" + e->Name() + ">: " + why;
}

std::string ConfigFile::read(const std::string& path, const ConfigRules& rules) {
    path_ = path;
    document_->Clear();
    if (path.empty()) return "";
    std::string text;
    const std::string refused = read_xml(path, *document_, text);
    return accept(refused, text, rules);
}

std::string ConfigFile::parse(const std::string& path, const std::string& text, const ConfigRules& rules) {
    path_ = path;
    return accept(parse_xml(text, *document_), text, rules);
}

// Checks the document, unless it was refused already.
std::string ConfigFile::accept(const std::string& refused, const std::string& text, const ConfigRules& rules) const {
    if (!refused.empty()) return "-middlewareConfig: " + path_ + refused;
    const XMLElement* root = document_->RootElement();
    if (!same_name(root->Name(), rules.root))
        return problem(root, std::string("the root element must be <") + rules.root + ">");
    if (text.find('$') != std::string::npos)
        return problem(root, "the file contains '$', but variables are not expanded; write their values");
    return check(root, "", rules);
}

std::string ConfigFile::check(const XMLElement* parent, const std::string& path, const ConfigRules& rules) const {
    for (auto e = parent->FirstChildElement(); e; e = e->NextSiblingElement()) {
        const std::string below = (path.empty() ? "" : path + "/") + lower(e->Name());
        const Match matched = match(below, rules);
        if (matched == Match::refused) return problem(e, rules.reserved);
        // find() sees only the first of these.
        if (matched == Match::above && e->PreviousSiblingElement(e->Name()))
            return problem(e, "given twice; give it once");
        const std::string why = check(e, below, rules);
        if (!why.empty()) return why;
    }
    return "";
}

const XMLElement* ConfigFile::find(const std::string& path) const {
    const XMLElement* e = document_->RootElement();
    for (size_t from = 0; e && from <= path.size();) {
        const size_t to = std::min(path.find('/', from), path.size());
        const std::string name = path.substr(from, to - from);
        e = e->FirstChildElement();
        while (e && !same_name(e->Name(), name)) e = e->NextSiblingElement();
        from = to + 1;
    }
    return e;
}

std::string ConfigFile::text() const {
    if (!document_->RootElement()) return "";
    tinyxml2::XMLPrinter printer(nullptr, true);
    document_->RootElement()->Accept(&printer);
    return printer.CStr();
}

}  // namespace k8sdds
