// The quality of service of the endpoints of Fast DDS, derived from the options and the user's own configuration file.
#pragma once

#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/publisher/qos/DataWriterQos.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/subscriber/qos/DataReaderQos.hpp>

#include "fastdds_config.h"

namespace k8sdds {

fastdds_api::Duration_t fastdds_duration(int64_t ns);

// The user's profiles apply to the data endpoints; the announcement channel gets an empty one.
// The functions `fastdds_data_…` add what only the endpoints of samples have.
eprosima::fastdds::dds::DataWriterQos fastdds_writer_qos(const eprosima::fastdds::dds::Publisher&, const Settings&,
                                                         const EndpointQos&, const FastDdsProfiles&, uint32_t instances,
                                                         uint64_t length);
eprosima::fastdds::dds::DataWriterQos fastdds_data_writer_qos(const eprosima::fastdds::dds::Publisher&, const Settings&,
                                                              const DataEndpoint&, const FastDdsProfiles&);
eprosima::fastdds::dds::DataReaderQos fastdds_reader_qos(const eprosima::fastdds::dds::Subscriber&, const Settings&,
                                                         const EndpointQos&, const FastDdsProfiles&);
eprosima::fastdds::dds::DataReaderQos fastdds_data_reader_qos(const eprosima::fastdds::dds::Subscriber&, const Settings&,
                                                              const DataEndpoint&, const FastDdsProfiles&);

// Returns the policies in effect for the samples of a writer.
EffectiveQos fastdds_effective_qos(const Settings&, const eprosima::fastdds::dds::DataWriter&);

}  // namespace k8sdds
