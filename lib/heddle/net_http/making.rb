# frozen_string_literal: true

module Heddle
  module NetHTTP
    # `Net::HTTP.new`: stock merges two Hashes of defaults and sets what belongs to TLS variable by variable, by name, which is
    # a fifth of what a request on a connection of its own costs. The same variables get the same values here, in the same
    # order, in a method whose variables Ruby knows beforehand.
    module Making
      class << self
        # Not where this version's objects hold something whose value we do not know.
        def define(front, http)
          return if front.private_method_defined?(:initialize, false) # never taken away, see installation.rb

          source_for(http)&.then { |source| front.module_eval(source, __FILE__, __LINE__) }
        end

        private

        def source_for(http)
          return unless http.instance_method(:initialize).parameters == [%i[req address], %i[opt port]]
          return if configurable?(http) && http.default_configuration

          object = http.allocate.tap { |made| made.send(:initialize, "host", 1) } # before `new` goes on to proxies
          values = object.instance_variables.map { |name| [name, literal(http, name, object.instance_variable_get(name))] }
          text(http, values) unless values.any? { |_, value| value.nil? }
        end

        def configurable?(http) = http.respond_to?(:default_configuration)

        def text(http, values)
          wanted = "Library.makes?(self)#{" && !self.class.default_configuration" if configurable?(http)}"
          <<~RUBY
            def initialize(address, port = nil)
              unless #{wanted}
                kept = Aliases.kept(self, :initialize)
                return kept ? kept.bind_call(self, address, port) : super
              end

              #{values.map { |name, value| "#{name} = #{value}" }.join("; ")}
            end
          RUBY
        end

        def literal(http, name, value)
          case name
          when :@address then "address"
          when :@port then "port || ::#{http.name}.default_port"
          when :@curr_http_version then "::#{http.name}::HTTPVersion" if value.equal?(http::HTTPVersion)
          else
            value.inspect if value.nil? || value == true || value == false || value.is_a?(Integer)
          end
        end
      end
    end
    private_constant :Making
  end
end
