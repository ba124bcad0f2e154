# frozen_string_literal: true

require "net/http"

# aws-sdk-core prepends a method to Net::HTTPGenericRequest#supply_default_content_type that calls super in everybody's requests.
# net-http has no such method since 0.7, so that with aws-sdk-core loaded others' bodies without a type fail, with Ruby's own
# Net::HTTP too. An empty method stands in for it.
unless Net::HTTPGenericRequest.private_method_defined?(:supply_default_content_type)
  class Net::HTTPGenericRequest
    private

    def supply_default_content_type
    end
  end
end
