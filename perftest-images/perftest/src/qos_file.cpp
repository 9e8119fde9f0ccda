#include "qos_file.h"

#include <tinyxml2.h>

#include <cstdlib>
#include <cstring>

#include "options.h"
#include "xml_text.h"

namespace k8sdds {
namespace {

using tinyxml2::XMLElement;

class Reader {
public:
    explicit Reader(const std::string& path) : path_(path) {}

    QosProfile read() {
        std::string text;
        return profile(read_xml(path_, document_, text));
    }
    QosProfile parse(const std::string& text) { return profile(parse_xml(text, document_)); }

private:
    // Returns the profile in the document, unless it was refused.
    QosProfile profile(const std::string& refused) {
        if (!refused.empty()) throw UsageError("-qosFile: " + path_ + refused);
        const XMLElement* root = document_.RootElement();
        if (std::strcmp(root->Name(), "dds") != 0) fail(root, "the root element must be <dds>");
        const XMLElement* profile = choose(root);
        QosProfile qos;
        qos.file = path_;
        qos.name = profile->Attribute("name") ? profile->Attribute("name") : "";
        if (qos.name.empty()) fail(profile, "a profile must have a name");
        attributes(profile, {"name", "is_default_qos"});
        for (auto e = profile->FirstChildElement(); e; e = e->NextSiblingElement()) {
            once(e);
            const std::string name = e->Name();
            attributes(e, {});
            if (name == "datawriter_qos") endpoint(e, qos.writer, &qos);
            else if (name == "datareader_qos") endpoint(e, qos.reader, nullptr);
            else fail(e, "only <datawriter_qos> and <datareader_qos> are supported here");
        }
        if (qos.reader.reliable && !qos.writer.reliable)
            fail(profile, "a RELIABLE reader never matches a BEST_EFFORT writer; use the same kind for both");
        if (static_cast<int>(qos.reader.durability) > static_cast<int>(qos.writer.durability))
            fail(profile, "the reader requests more durability than the writer offers; use the same kind for both");
        if (qos.reader.by_source_timestamp && !qos.writer.by_source_timestamp)
            fail(profile, "the reader requests a destination order that the writer does not offer; use the same "
                          "kind for both");
        if (qos.reader.deadline_ns != infinite &&
            (qos.writer.deadline_ns == infinite || qos.writer.deadline_ns > qos.reader.deadline_ns))
            fail(profile, "the reader's deadline is shorter than the writer's, so they never match; "
                          "make it at least as long");
        if (qos.reader.latency_budget_ns != infinite &&
            (qos.writer.latency_budget_ns == infinite || qos.writer.latency_budget_ns > qos.reader.latency_budget_ns))
            fail(profile, "the reader's latency budget is shorter than the writer's, so they never match; "
                          "make it at least as long");
        return qos;
    }

    [[noreturn]] void fail(const XMLElement* e, const std::string& why) const {
        throw UsageError("-qosFile: " + path_ + ":" + std::to_string(e->GetLineNum()) + ": <" + e->Name() + ">: " + why);
    }

    void attributes(const XMLElement* e, std::initializer_list<const char*> allowed) const {
        for (auto a = e->FirstAttribute(); a; a = a->Next()) {
            bool known = std::strncmp(a->Name(), "xmlns", 5) == 0 || std::strncmp(a->Name(), "xsi:", 4) == 0;
            for (const char* name : allowed) known = known || std::strcmp(name, a->Name()) == 0;
            if (!known) fail(e, std::string("the attribute ") + a->Name() + " is not supported; remove it");
        }
    }

    void once(const XMLElement* e) const {
        if (e->PreviousSiblingElement(e->Name())) fail(e, "given twice; give it once");
    }

    const XMLElement* choose(const XMLElement* root) const {
        const XMLElement *only = nullptr, *marked = nullptr;
        int profiles = 0;
        attributes(root, {});
        for (auto library = root->FirstChildElement(); library; library = library->NextSiblingElement()) {
            if (std::strcmp(library->Name(), "qos_library") != 0) fail(library, "only <qos_library> is supported here");
            attributes(library, {"name"});
            for (auto e = library->FirstChildElement(); e; e = e->NextSiblingElement()) {
                if (std::strcmp(e->Name(), "qos_profile") != 0) fail(e, "only <qos_profile> is supported here");
                ++profiles;
                only = e;
                if (e->BoolAttribute("is_default_qos")) {
                    if (marked) fail(e, "a second profile is marked is_default_qos; mark only one");
                    marked = e;
                }
            }
        }
        if (!profiles) fail(root, "no <qos_profile> in the file; add one");
        if (profiles > 1 && !marked) fail(root, "several profiles; mark one of them with is_default_qos=\"true\"");
        return marked ? marked : only;
    }

    std::string text(const XMLElement* e) const {
        if (e->FirstChildElement()) fail(e, "expected a plain value");
        attributes(e, {});
        std::string value = e->GetText() ? e->GetText() : "";
        const size_t from = value.find_first_not_of(" \t\r\n"), to = value.find_last_not_of(" \t\r\n");
        if (from == std::string::npos) fail(e, "the value is missing");
        return value.substr(from, to - from + 1);
    }

    int64_t whole(const XMLElement* e, int64_t low) const {
        const std::string value = text(e);
        char* end = nullptr;
        const long long number = std::strtoll(value.c_str(), &end, 10);
        if (*end || number < low || number > 2147483647) fail(e, "'" + value + "' is not a valid number");
        return number;
    }

    int64_t limit(const XMLElement* e) const {
        const std::string value = text(e);
        return value == "LENGTH_UNLIMITED" || value == "-1" ? infinite : whole(e, 1);
    }

    int64_t duration(const XMLElement* e) const {
        attributes(e, {});
        int64_t sec = 0, nanosec = 0;
        bool endless = false, any = false;
        for (auto part = e->FirstChildElement(); part; part = part->NextSiblingElement()) {
            once(part);
            any = true;
            const std::string name = part->Name(), value = text(part);
            if (name != "sec" && name != "nanosec") fail(part, "a duration must have <sec> or <nanosec>");
            const bool unlimited = value.rfind("DURATION_INFINIT", 0) == 0;
            if (unlimited) endless = true;
            else (name == "sec" ? sec : nanosec) = whole(part, 0);
        }
        if (!any) fail(e, "a duration must have <sec> or <nanosec>");
        if (nanosec >= 1'000'000'000) fail(e, "<nanosec> must be less than one second");
        return endless ? infinite : sec * 1'000'000'000 + nanosec;
    }

    std::string kind(const XMLElement* e, std::string suffix) const {
        std::string value = text(e);
        if (value.size() > suffix.size() && value.compare(value.size() - suffix.size(), suffix.size(), suffix) == 0)
            value.resize(value.size() - suffix.size());
        return value;
    }

    void endpoint(const XMLElement* parent, EndpointQos& qos, QosProfile* of_writer) {
        for (auto e = parent->FirstChildElement(); e; e = e->NextSiblingElement()) {
            once(e);
            attributes(e, {});
            const std::string policy = e->Name();
            if (policy == "property") {
                property(e, of_writer);
                continue;
            }
            for (auto item = e->FirstChildElement(); item; item = item->NextSiblingElement()) {
                once(item);
                if (!value(policy, item, qos)) fail(item, "not supported in <" + policy + ">; remove it");
            }
            if (!e->FirstChildElement()) fail(e, "not supported or empty; remove it");
            qos.lines[policy] = e->GetLineNum();
        }
    }

    bool value(const std::string& policy, const XMLElement* e, EndpointQos& qos) const {
        const std::string name = e->Name(), path = policy + "." + name;
        if (path == "reliability.kind") {
            const std::string k = kind(e, "_RELIABILITY_QOS");
            if (k != "RELIABLE" && k != "BEST_EFFORT") fail(e, "give RELIABLE_ or BEST_EFFORT_RELIABILITY_QOS");
            qos.reliable = k == "RELIABLE";
        } else if (path == "reliability.max_blocking_time") {
            qos.max_blocking_ns = duration(e);
        } else if (path == "durability.kind") {
            const std::string k = kind(e, "_DURABILITY_QOS");
            using D = EndpointQos::Durability;
            if (k == "VOLATILE") qos.durability = D::volatile_;
            else if (k == "TRANSIENT_LOCAL") qos.durability = D::transient_local;
            else if (k == "TRANSIENT") qos.durability = D::transient;
            else if (k == "PERSISTENT") qos.durability = D::persistent;
            else fail(e, "'" + k + "' is not a durability kind");
        } else if (path == "history.kind") {
            const std::string k = kind(e, "_HISTORY_QOS");
            if (k != "KEEP_ALL" && k != "KEEP_LAST") fail(e, "give KEEP_ALL_ or KEEP_LAST_HISTORY_QOS");
            qos.keep_all = k == "KEEP_ALL";
        } else if (path == "history.depth") {
            qos.depth = whole(e, 1);
        } else if (path == "resource_limits.max_samples") {
            qos.max_samples = limit(e);
        } else if (path == "resource_limits.max_instances") {
            qos.max_instances = limit(e);
        } else if (path == "resource_limits.max_samples_per_instance") {
            qos.max_samples_per_instance = limit(e);
        } else if (path == "deadline.period") {
            qos.deadline_ns = duration(e);
        } else if (path == "latency_budget.duration") {
            qos.latency_budget_ns = duration(e);
        } else if (path == "lifespan.duration") {
            qos.lifespan_ns = duration(e);
        } else if (path == "destination_order.kind") {
            const std::string k = kind(e, "_DESTINATIONORDER_QOS");
            if (k != "BY_RECEPTION_TIMESTAMP" && k != "BY_SOURCE_TIMESTAMP")
                fail(e, "'" + k + "' is not a destination order");
            qos.by_source_timestamp = k == "BY_SOURCE_TIMESTAMP";
        } else if (path == "ownership.kind") {
            if (kind(e, "_OWNERSHIP_QOS") != "SHARED") fail(e, "only SHARED_OWNERSHIP_QOS is supported");
        } else if (path == "transport_priority.value") {
            qos.transport_priority = whole(e, 0);
        } else {
            return false;
        }
        return true;
    }

    void property(const XMLElement* e, QosProfile* of_writer) const {
        const XMLElement* list = e->FirstChildElement("value");
        if (!list || list != e->LastChildElement()) fail(e, "expected a <value> with <element>s");
        for (auto item = list->FirstChildElement(); item; item = item->NextSiblingElement()) {
            const XMLElement *name = item->FirstChildElement("name"), *value = item->FirstChildElement("value");
            if (std::strcmp(item->Name(), "element") != 0 || !name || !value)
                fail(item, "expected an <element> with <name> and <value>");
            if (text(name) != "k8sdds.batch_bytes")
                fail(name, "the property " + text(name) + " is not supported; remove it");
            if (!of_writer) fail(name, "batching is a property of <datawriter_qos>; move it there");
            of_writer->batch_bytes = whole(value, 0);
            of_writer->batch_line = value->GetLineNum();
        }
    }

    std::string path_;
    tinyxml2::XMLDocument document_;
};

}  // namespace

QosProfile built_in_profile(bool best_effort) {
    QosProfile profile;
    profile.name = best_effort ? "best-effort" : "strict-reliable";
    profile.writer.reliable = profile.reader.reliable = !best_effort;
    if (best_effort) profile.writer.keep_all = false;
    return profile;
}

QosProfile read_qos_file(const std::string& path) { return Reader(path).read(); }
QosProfile parse_qos(const std::string& path, const std::string& text) { return Reader(path).parse(text); }

}  // namespace k8sdds
