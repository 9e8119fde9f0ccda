#include "histogram_log.h"

#include <openssl/evp.h>
#include <zlib.h>

#include <cstdio>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <vector>

namespace k8sdds {
namespace {

constexpr uint32_t cookie = 0x1c849303 | 0x10, compressed_cookie = 0x1c849304 | 0x10;

// Appends a big-endian integer.
void put(std::string& out, uint64_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i));
}

// Appends a ZigZag-encoded integer in little-endian base 128, at most nine bytes.
void put_count(std::string& out, int64_t value) {
    uint64_t rest = (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
    for (int i = 0; i < 8 && rest >= 0x80; ++i, rest >>= 7) out += static_cast<char>(rest | 0x80);
    out += static_cast<char>(rest);
}

std::string base64(const std::string& data) {
    std::vector<unsigned char> text(4 * ((data.size() + 2) / 3) + 1);
    const int length = EVP_EncodeBlock(text.data(), reinterpret_cast<const unsigned char*>(data.data()),
                                       static_cast<int>(data.size()));
    return {text.begin(), text.begin() + length};
}

}  // namespace

std::string encode_counts(const std::vector<uint64_t>& all, size_t used) {
    std::string counts;
    for (size_t i = 0; i < used;) {
        if (all[i]) {
            put_count(counts, static_cast<int64_t>(all[i++]));
            continue;
        }
        int64_t zeros = 0;
        for (; i < used && !all[i]; ++i) ++zeros;
        put_count(counts, zeros > 1 ? -zeros : 0);
    }
    std::string plain;
    put(plain, cookie, 4);
    put(plain, counts.size(), 4);
    put(plain, 0, 4);                                      // normalizing index offset
    put(plain, Histogram::digits, 4);
    put(plain, 1, 8);                                      // lowest and highest value
    put(plain, Histogram::highest, 8);
    const double ratio = 1.0;
    uint64_t bits;
    std::memcpy(&bits, &ratio, 8);
    put(plain, bits, 8);
    plain += counts;

    std::vector<unsigned char> compressed(compressBound(plain.size()));
    uLongf size = compressed.size();
    if (compress2(compressed.data(), &size, reinterpret_cast<const Bytef*>(plain.data()), plain.size(), 6) != Z_OK)
        throw std::runtime_error("zlib could not compress the histogram");
    std::string packed;
    put(packed, compressed_cookie, 4);
    put(packed, size, 4);
    packed.append(reinterpret_cast<const char*>(compressed.data()), size);
    return base64(packed);
}

std::string histogram_log(const Histogram& histogram, const std::string& tag, double start_s, double length_s) {
    char line[200], date[80];
    const time_t whole = static_cast<time_t>(start_s);
    tm utc{};
    gmtime_r(&whole, &utc);
    std::strftime(date, sizeof date, "%a %b %d %H:%M:%S UTC %Y", &utc);
    std::string log = "#[k8sdds: nanoseconds, tag " + tag + "]\n";
    log += "#[Histogram log format version 1.3]\n";
    std::snprintf(line, sizeof line, "#[StartTime: %.3f (seconds since epoch), %s]\n", start_s, date);
    log += line;
    log += "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n";
    std::snprintf(line, sizeof line, ",%.3f,%.3f,%.3f,", 0.0, length_s, histogram.max() / 1e6);
    const size_t used = histogram.used();
    log += "Tag=" + tag + line + encode_counts(histogram.counts(), used) + "\n";
    return log + "Tag=" + tag + "_episodes" + line + encode_counts(histogram.episodes(), used) + "\n";
}

}  // namespace k8sdds
