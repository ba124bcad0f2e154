# frozen_string_literal: true

require_relative "refusing"

module Heddle
  class Simulation
    # Libraries that connect in C of their own, where no simulation can take the place of the network.
    module Libraries
      # By the methods that connect.
      KNOWN = {
        "PG::Connection" => [%i[new open connect connect_start async_connect], []],
        "Mysql2::Client" => [[:new], []], "Trilogy" => [[:new], []],
        "Curl::Easy" => [[], %i[perform]], "Curl::Multi" => [[], %i[perform]],
        "Ethon::Easy" => [[], %i[perform]], "Ethon::Multi" => [[], %i[perform]], "Patron::Session" => [[], %i[request]],
        "TinyTds::Client" => [[:new], []], "Rdkafka::Config" => [[], %i[consumer producer admin]]
      }.freeze
      private_constant :KNOWN

      class << self
        # Has those that are loaded raise an error in a simulation.
        def refuse
          @refused ||= {}
          KNOWN.each do |name, (of_class, of_object)|
            next if @refused[name] || !Object.const_defined?(name)

            klass = Object.const_get(name)
            klass.singleton_class.prepend(refusal(name, of_class))
            klass.prepend(refusal(name, of_object))
            @refused[name] = true
          end
        end

        private

        def refusal(library, names)
          Refusing.module_of(names) do
            raise Error, "#{library} connects in C of its own, which would reach the real network from within " \
              "a simulation: use a client that is written in Ruby, or Heddle's own"
          end
        end
      end
    end
    private_constant :Libraries
  end
end
