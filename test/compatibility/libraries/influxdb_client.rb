# frozen_string_literal: true

Compatibility.library "influxdb-client", kind: "Search and databases over HTTP" do
  peer(:http) do |request|
    [200, {"Content-Type" => "text/csv"}, <<~CSV]
      #datatype,string,long,long
      #group,false,false,false
      #default,_result,,
      ,result,table,_value
      ,,0,#{request.number}

    CSV
  end
  load { require "influxdb-client" }
  connect do |peer|
    InfluxDB2::Client.new(peer.url, "token", org: "org", bucket: "things", use_ssl: false).create_query_api
  end
  ask { |influx, number| influx.query(query: "heddle#{number}").first.records.first.value }
end
