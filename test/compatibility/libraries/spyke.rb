# frozen_string_literal: true

Compatibility.library "spyke", kind: "REST mappers" do
  peer(:http) { |request| {id: request.number} }
  load do
    require "spyke"
    ActiveSupport::IsolatedExecutionState.isolation_level = :fiber
  end
  connect do |peer|
    parser = Class.new(Faraday::Middleware) do
      def on_complete(env) = env.body = {data: JSON.parse(env.body, symbolize_names: true)}
    end
    Class.new(Spyke::Base) do
      uri "things/(:id)"
      self.connection = Faraday.new(peer.url) { |http| http.use(parser) && http.adapter(:net_http) }
      def self.name = "Thing"
    end
  end
  ask { |things, number| things.find("heddle#{number}").id }
  note "It keeps a query's scope where ActiveSupport keeps the state of a thread: with the isolation level `:thread` " \
       "tasks get each other's results ([limits](limits.md#activerecord-with-the-isolation-level-thread))."
end
