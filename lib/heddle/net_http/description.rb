# frozen_string_literal: true

require "stringio"

module Heddle
  module NetHTTP
    # Describes one library to the C code. This checks no version: it has the library make a request and a response and
    # read two heads, and describes the results.
    #
    # @api private
    class Description
      def initialize(http, space)
        @http = http
        @space = space
      end

      # @param library [Library] gets the description
      def give(library)
        library.set(:http, @http)
        library.set(:read_timeout, @space::ReadTimeout)
        library.set(:write_timeout, @space::WriteTimeout)
        library.set(:open_timeout, @space::OpenTimeout)
        library.set(:bad_response, @space::HTTPBadResponse)
        library.set(:read_limit_exceeded, (@space::ReadLimitExceeded if own?(@space, :ReadLimitExceeded)))
        library.set(:header, @space::HTTPHeader)
        library.set(:idempotent_methods, @http::IDEMPOTENT_METHODS_)
        library.set(:limits_fields, own?(@space::HTTPHeader, :MAX_FIELD_LENGTH))
        library.set(:buffered_template, buffered_template)
        describe_responses(library)
        describe_requests(library)
      end

      # The library's classes.
      def requests
        generic = @space::HTTPGenericRequest
        own = @space::HTTPRequest.subclasses.select { |klass| klass.name&.start_with?("#{@http.name}::") }
        [generic, @space::HTTPRequest, *own]
      end

      def responses
        response = @space::HTTPResponse
        [response, *response::CODE_TO_OBJ.values, *response::CODE_CLASS_TO_OBJ.values, @space::HTTPUnknownResponse].uniq
      end

      # The classes without methods of their own. If a program has given a method to Net::HTTP::Delete, the library
      # sends such requests. Each class may have an `initialize`, which Ruby calls anyway.
      #
      # @return [Hash{Class => true}]
      def known_requests = known(without_methods(requests, but: [:initialize]))

      # The library reads chunks by read_line of the response's class.
      def known_responses
        shipped = @space::HTTPResponse.singleton_class
        known(without_methods(responses).select { |klass|
          !klass.respond_to?(:read_line) || klass.method(:read_line).owner.equal?(shipped)
        })
      end

      private

      # nil if the value of a variable is unknown here.
      def buffered_template
        taken = {:@io => nil, :@read_timeout => nil, :@write_timeout => nil, :@continue_timeout => nil, :@rbuf => nil}
        template = variables(@space::BufferedIO.new(StringIO.new)).each_slice(2).to_h.merge(taken)
        template.to_a.flatten(1) if template.each_value.all? { |value| [nil, true, false, 0].include?(value) }
      end

      def describe_responses(library)
        response = @space::HTTPResponse
        library.set(:response, response)
        library.set(:code_to_object, response::CODE_TO_OBJ)
        library.set(:code_class_to_object, response::CODE_CLASS_TO_OBJ)
        library.set(:unknown_response, @space::HTTPUnknownResponse)
        library.set(:response_template, variables(response.new("1.1", "200", "OK")))
        library.set(:limits_heads, response.respond_to?(:read_line))
        library.set(:blank_ends, !fields("a: b\n \nc: d\n\n").key?("c"))
        library.set(:folds_skip_empty, fields("a: b\n \0\n\n")["a"] == ["b"])
      end

      def describe_requests(library)
        request = @space::HTTPGenericRequest.new("GET", false, true, "/")
        library.set(:request, @space::HTTPGenericRequest)
        library.set(:request_template, variables(request))
        library.set(:request_fields, request.to_hash.flat_map { |name, values| [name, values.first] })
        library.set(:inflates, request.decode_content)
      end

      # Classes are found by their addresses, without a call of their `hash`.
      def known(classes) = classes.to_h { |klass| [klass, true] }.compare_by_identity

      def without_methods(classes, but: [])
        common = classes.first.ancestors
        classes.select do |klass|
          (klass.ancestors - common).all? do |mod|
            mod.instance_methods(false).empty? && (mod.private_instance_methods(false) - but).empty?
          end
        end
      end

      # Top-level constants of the program do not count.
      def own?(mod, name) = mod.const_defined?(name, false)

      def variables(object)
        object.instance_variables.flat_map { |name| [name, object.instance_variable_get(name)] }
      end

      # The fields that the library reads from this head.
      def fields(text)
        socket = @space::BufferedIO.new(StringIO.new("HTTP/1.1 200 OK\n#{text}"))
        @space::HTTPResponse.read_new(socket).to_hash
      end
    end
    private_constant :Description
  end
end
