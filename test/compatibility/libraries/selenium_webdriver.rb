# frozen_string_literal: true

Compatibility.library "selenium-webdriver", kind: "Infrastructure" do
  peer(:http) do |request|
    [200, {"Content-Type" => "application/json; charset=utf-8"}, JSON.generate(value: request.number)]
  end
  load { require "selenium-webdriver" }
  connect do |peer|
    Selenium::WebDriver::Remote::Http::Default.new.tap { |http| http.server_url = URI("#{peer.url}/") }
  end
  ask { |http, number| http.call(:get, "heddle#{number}", nil)["value"] }
  close(&:close)
  because :afterwards, "After a cancel an open session gives the next request the answer to the cancelled one " \
                       "([net-http #157](https://github.com/ruby/net-http/issues/157)): `heddle/net_http` closes it."
end
